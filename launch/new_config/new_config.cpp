#include "launch/new_config/new_config.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/new_config/amounts.h"
#include "launch/new_config/annotated_toml.h"
#include "launch/new_config/model_sections.h"
#include "launch/new_config/training_rules.h"
#include "launch/plan/fastest_layout.h"
#include "launch/training/engine_options.h"
#include "launch/training/layout.h"
#include "launch/training/memory.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::new_config {

namespace {

/// A configuration whose mesh is still open.
class Draft {
 public:
  explicit Draft(const Request& request)
      : request_(request),
        family_(find_family(request.like, request.parameters)),
        sequence_length_(sequence_length_for(family_, request.parameters)),
        shape_(choose_shape({.family = family_,
                             .parameters = request.parameters,
                             .vocab_size = request.data.vocab_size,
                             .sequence_length = sequence_length_})),
        tokens_(request.tokens.value_or(kTokensPerParameter * shape_.active)) {}

  const Family& family() const { return family_; }
  const Shape& shape() const { return shape_; }
  int64_t sequence_length() const { return sequence_length_; }
  /// Passes over the training part.
  double epochs(const TrainingRules& rules) const {
    return static_cast<double>(rules.tokens) / static_cast<double>(std::max<int64_t>(1, request_.data.tokens));
  }
  TrainingRules rules(int64_t ranks) const { return rules(ranks, tokens_); }
  /// The most tokens, in three digits, whose whole steps are at most kUsefulEpochs; absent if these are too few steps.
  std::optional<int64_t> useful_tokens() const;
  AnnotatedToml toml(const TrainingRules& rules) const;
  plan::ResolveChoice resolver() const;

 private:
  TrainingRules rules(int64_t ranks, int64_t tokens) const {
    return training_rules({.shape = shape_, .sequence_length = sequence_length_, .tokens = tokens, .ranks = ranks});
  }
  void write_training(const TrainingRules& rules, AnnotatedToml& toml) const;
  void write_optimizer(const TrainingRules& rules, AnnotatedToml& toml) const;

  const Request& request_;
  const Family family_;
  const int64_t sequence_length_;
  const Shape shape_;
  const int64_t tokens_;
};

std::optional<int64_t> Draft::useful_tokens() const {
  int64_t tokens = round_down_to_three_digits(static_cast<int64_t>(kUsefulEpochs) * request_.data.tokens);
  try {
    while (epochs(rules(request_.ranks, tokens)) > kUsefulEpochs) tokens = round_down_to_three_digits(tokens - 1);
  } catch (const Error&) {  // fewer than kLeastSteps
    return std::nullopt;
  }
  return tokens;
}

std::string epochs_text(double epochs) {
  return epochs < 10 ? absl::StrFormat("%.2g epochs", epochs) : absl::StrFormat("%.0f epochs", epochs);
}

std::string toml_string(std::string_view text) {
  std::string escaped;
  for (const char c : text) escaped += (c == '"' || c == '\\') ? str_cat("\\", std::string(1, c)) : std::string(1, c);
  return str_cat("\"", escaped, "\"");
}

void Draft::write_training(const TrainingRules& rules, AnnotatedToml& toml) const {
  const std::string amount = amount_text(static_cast<double>(rules.tokens));
  toml.set("train.steps", rules.steps,
           request_.tokens ? str_cat(amount, " tokens, as asked")
                           : str_cat(amount, " tokens, ", kTokensPerParameter,
                                     " a parameter that a token meets (Hoffmann et al. 2022, arXiv 2203.15556)"));
  toml.set("train.sequence_length", sequence_length_,
           sequence_length_ == family_.config.train.sequence_length
               ? "the context of " + family_.title
               : "as published models of this size: GPT-2 1024, GPT-3 and Pythia 2048, Llama 2 4096");
  toml.set(
      "train.global_batch", rules.global_batch,
      absl::StrFormat("%s tokens a step; 0.2920 C^0.3271 = %s for C = %.2g flops in the layers (DeepSeek LLM, arXiv "
                      "2401.02954, 3.1), rounded to a power of two times the ranks",
                      amount_text(static_cast<double>(rules.global_batch * sequence_length_)),
                      amount_text(rules.batch_tokens), rules.compute));
  toml.set("train.eval_every", rules.eval_every, "about twenty validations, at most 1000 steps apart");
  toml.set("train.eval_sequences", rules.eval_sequences,
           absl::StrFormat("%s tokens, spread evenly over the validation part",
                           amount_text(static_cast<double>(rules.eval_sequences * sequence_length_))));
  toml.set("checkpoint.every", rules.checkpoint_every, "a killed run loses at most so many steps");
  toml.set("checkpoint.keep", int64_t{3}, "the newest ones");
  toml.set("log.every", rules.log_every, "steps between lines on the terminal; metrics.jsonl has every step");
}

void Draft::write_optimizer(const TrainingRules& rules, AnnotatedToml& toml) const {
  toml.set("optimizer.kind", "\"adamw\"", "decoupled decay (Loshchilov & Hutter 2019)");
  toml.set_number("optimizer.lr", rules.lr,
                  absl::StrFormat("0.3118 C^-0.1250, C as for the batch (DeepSeek LLM, arXiv 2401.02954, 3.1)"));
  toml.set("optimizer.beta1", "0.9", "GPT-3, Llama 2, DeepSeek LLM");
  toml.set("optimizer.beta2", "0.95", "likewise; shorter than Adam's 0.999, so that rare large gradients fade");
  toml.set("optimizer.eps", "1e-8", "GPT-3 (arXiv 2005.14165, appendix B); Llama 2 has 1e-5");
  toml.set("optimizer.weight_decay", "0.1", "GPT-3, Llama 2, DeepSeek LLM");
  toml.set("optimizer.clip", "1.0", "largest gradient norm; likewise");
  toml.set("schedule.kind", "\"cosine\"",
           "over the whole run: a longer cosine costs loss (Hoffmann et al. 2022, app. B)");
  toml.set("schedule.warmup_steps", rules.warmup_steps, "a twentieth, at most the 2000 of Llama 2 and DeepSeek LLM");
  toml.set("schedule.min_ratio", "0.1", "down to a tenth of the peak (GPT-3, Chinchilla)");
}

AnnotatedToml Draft::toml(const TrainingRules& rules) const {
  AnnotatedToml toml;
  const bool gpu = request_.target.kind == plan::DeviceKind::kCuda;
  toml.set("run.device", gpu ? "\"cuda\"" : "\"cpu\"", request_.target.name());
  toml.set("run.dtype", "\"bf16\"", "storage; sums, moments and main gradients are fp32 (Micikevicius et al. 2018)");
  toml.set("run.seed", int64_t{0}, "of weights and order of samples; change it to repeat the run");
  write_model(family_, shape_, toml);
  write_training(rules, toml);
  write_optimizer(rules, toml);
  toml.set("data.path", toml_string(request_.data.path),
           absl::StrFormat("%s training tokens: %s; up to 4 are nearly as good as new data (arXiv 2305.16264)",
                           amount_text(static_cast<double>(request_.data.tokens)), epochs_text(epochs(rules))));
  return toml;
}

config::RunConfig resolved_text(const Request& request, const std::string& text, const plan::Choice& choice) {
  const config::RawConfig raw = config::parse_config(text, request.file, choice.overrides);
  return config::resolve(raw, {.dataset_vocab_size = request.data.vocab_size,
                               .ranks = choice.ranks,
                               .local_ranks = choice.ranks,
                               .hardware_threads = request.hardware_threads})
      .config;
}

plan::ResolveChoice Draft::resolver() const {
  return
      [this](const plan::Choice& choice) { return resolved_text(request_, toml(rules(choice.ranks)).text(), choice); };
}

plan::LayoutRequest layout_request(const Request& request, const Draft& draft) {
  const bool gpu = request.target.kind == plan::DeviceKind::kCuda;
  return {.ranks = request.ranks,
          .experts = draft.shape().model.moe.experts > 0,
          .target = request.target,
          .capacity = static_cast<int64_t>(kUsedShare * static_cast<double>(request.target.capacity)),
          .most_tokens = gpu ? 32768 : 8192,
          .data_bytes = request.data.resident_bytes(draft.sequence_length()),
          .program_bytes = request.program_bytes};
}

/// The least number of ranks, by powers of two times the request's, on which some layout fits; 0 if none does.
int64_t enough_ranks(const Request& request, const Draft& draft) {
  constexpr int64_t kMostRanks = 1 << 16;
  for (int64_t ranks = 2 * request.ranks; ranks <= kMostRanks; ranks *= 2) {
    plan::LayoutRequest more = layout_request(request, draft);
    more.ranks = ranks;
    more.any = true;
    if (plan::fastest_layout(more, draft.resolver()).best) return ranks;
  }
  return 0;
}

/// The error of a model that no layout of the ranks fits.
Error nothing_fits(const Request& request, const Draft& draft, const std::optional<plan::Planned>& nearest) {
  std::string miss = "no mesh divides the model and the batch";
  if (nearest)
    miss = absl::StrFormat(
        "the nearest miss needs %s on a rank; of its %s a plan uses at most %.0f%% (%s, micro-batches of 1, recompute "
        "block)",
        training::human_bytes(nearest->memory.bytes), training::human_bytes(request.target.capacity), 100 * kUsedShare,
        training::mesh_text(training::shape_of(nearest->run.mesh)));
  // Ranks of one machine share its memory; ranks on devices have their own.
  const int64_t ranks = request.target.device ? enough_ranks(request, draft) : 0;
  return input_error("new", "-np ", request.ranks, " on ", request.target.name(), ": expected devices that hold ",
                     grouped(draft.shape().parameters), " parameters, but no mesh fits: ", miss, "; ",
                     ranks > 0 ? str_cat("-np ", ranks, " fits; use that, or ") : "",
                     "choose a smaller --params or a larger --device");
}

void write_layout(const Request& request, const plan::Planned& planned, AnnotatedToml& toml) {
  const config::RunConfig& c = planned.run;
  const std::string how = planned.time ? "the fastest division that fits, by `ashlar plan`"
                                       : "the division with the fewest parts that fits, by `ashlar plan`";
  toml.set("mesh.tensor", c.mesh.tensor, c.mesh.tensor > 1 ? how : "no layer is divided");
  if (c.mesh.sequence_parallel)
    toml.set("mesh.sequence_parallel", "true", "less memory for the same traffic (Korthikanti et al. 2022)");
  toml.set("mesh.pipeline", c.mesh.pipeline, c.mesh.pipeline > 1 ? how : "one stage");
  toml.set("mesh.data", c.mesh.data,
           str_cat("-np ", request.ranks, ", ", how, "; without this line, what the ranks give"));
  if (c.model.moe.experts > 0) toml.set("mesh.expert", c.mesh.expert, "of the replicas, divide the experts");
  toml.set("train.micro_batch", c.train.micro_batch, "the rest of the batch is accumulated");
  toml.set("train.recompute", toml_string(name_of(c.train.recompute)),
           c.train.recompute == Recompute::kNone ? "all activations fit" : "saves memory for time; see ashlar explain");
}

std::string train_line(const Request& request) {
  const std::string ranks = request.ranks == 1 ? "" : str_cat("launch -np ", request.ranks, " ");
  return str_cat("ashlar ", ranks, "train ", request.file);
}

std::string head_of(const Request& request, const Draft& draft) {
  std::string head =
      str_cat(amount_text(static_cast<double>(draft.shape().parameters)), " parameters with the architecture of ",
              draft.family().title, ", written by `ashlar new` by published rules: a start, not an optimum.");
  if (!draft.family().left_out.empty())
    head += str_cat(
        " Left out, since they stretch positions beyond a trained context: ", comma_list(draft.family().left_out), ".");
  return str_cat(as_comment(head), "#   ", train_line(request), "\n\n");
}

std::vector<std::string> summary_of(const Request& request, const Draft& draft, const TrainingRules& rules,
                                    const plan::Planned& planned) {
  const Shape& shape = draft.shape();
  const model::ModelConfig& m = shape.model;
  const double off = 100.0 * (static_cast<double>(shape.parameters) / static_cast<double>(request.parameters) - 1);
  const std::string active =
      m.moe.experts > 0 ? str_cat(", a token meets ", amount_text(static_cast<double>(shape.active))) : "";
  const std::string each = str_cat(", ", kTokensPerParameter, " a parameter",
                                   m.moe.experts > 0 ? " that a token meets" : "", " (Hoffmann et al. 2022)");
  const double seconds = planned.time ? planned.time->seconds : 0;
  return {
      absl::StrFormat("params   %s (%+.1f%%%s) as %s: %d layers of width %d, %d heads of %d (%d KV), %sd_ff %d",
                      grouped(shape.parameters), off, active, draft.family().id, m.n_layers, m.d_model, m.n_heads,
                      m.head_dim, m.n_kv_heads, m.moe.experts > 0 ? str_cat(m.moe.experts, " experts of ") : "",
                      m.moe.experts > 0 ? m.moe.d_ff : m.d_ff),
      str_cat("tokens   ", amount_text(static_cast<double>(rules.tokens)), request.tokens ? "" : each, ": ",
              epochs_text(draft.epochs(rules)), " of ", request.data.path),
      absl::StrFormat("steps    %s of %d sequences of %d tokens, peak rate %g", grouped(rules.steps),
                      rules.global_batch, draft.sequence_length(), rules.lr),
      planned.time ? str_cat("time     ", plan::duration_text(seconds * static_cast<double>(rules.steps)), ", ",
                             plan::duration_text(seconds), " a step on ", request.target.name())
                   : str_cat("time     unknown: ", planned.no_time),
      str_cat("mesh     ", training::mesh_text(training::shape_of(planned.run.mesh)), ", micro-batches of ",
              planned.run.train.micro_batch, ", recompute ", name_of(planned.run.train.recompute), ": ",
              training::human_bytes(planned.memory.bytes), " a rank of ",
              training::human_bytes(request.target.capacity)),
      str_cat("wrote    ", request.file, "; next: ", train_line(request)),
  };
}

std::vector<std::string> warnings_of(const Request& request, const Draft& draft, const TrainingRules& rules) {
  constexpr double kManyTables = 0.5;
  std::vector<std::string> warnings;
  const double epochs = draft.epochs(rules);
  if (epochs > kUsefulEpochs) {
    const std::optional<int64_t> useful = draft.useful_tokens();
    warnings.push_back(str_cat(
        "[new] ", amount_text(static_cast<double>(rules.tokens)), " tokens are ", epochs_text(epochs), " of the ",
        amount_text(static_cast<double>(request.data.tokens)), " training tokens of ", request.data.path, ": beyond ",
        kUsefulEpochs, " epochs repeated data is worth little (Muennighoff et al. 2023); give more data",
        useful ? str_cat(", a smaller --params, or --tokens ", amount_text(static_cast<double>(*useful)))
               : " or a smaller --params"));
  }
  if (draft.shape().tables > kManyTables)
    warnings.push_back(absl::StrFormat(
        "[new] %.0f%% of the parameters are tables of %s ids, %s are in the layers: a smaller vocabulary or a larger "
        "--params leaves more for the layers",
        100 * draft.shape().tables, grouped(request.data.vocab_size),
        amount_text(static_cast<double>(draft.shape().in_layers))));
  return warnings;
}

}  // namespace

NewConfig make_config(const Request& request) {
  const Draft draft(request);
  if (request.data.tokens <= draft.sequence_length())
    throw input_error("new", request.data.path, " has ", request.data.tokens, " training tokens: expected more than a ",
                      "sequence of ", draft.sequence_length(), "; build a larger dataset, or lower --params");
  const TrainingRules rules = draft.rules(request.ranks);
  const plan::LayoutRequest layout = layout_request(request, draft);
  plan::LayoutResult found = plan::fastest_layout(layout, draft.resolver());
  if (!found.best) throw nothing_fits(request, draft, found.nearest);
  AnnotatedToml toml = draft.toml(rules);
  write_layout(request, found.best->planned, toml);

  NewConfig result;
  result.text = head_of(request, draft) + toml.text();
  const config::RunConfig run = resolved_text(request, result.text, {.overrides = {}, .ranks = request.ranks});
  ASHLAR_CHECK(run == found.best->planned.run, "the text and the plan of a new configuration differ");
  ASHLAR_CHECK(model::count_parameters(run.model).total() == draft.shape().parameters,
               "a new configuration has other parameters than its shape");
  result.planned = std::move(found.best->planned);
  result.summary = summary_of(request, draft, rules, result.planned);
  result.warnings = warnings_of(request, draft, rules);
  return result;
}

}  // namespace ashlar::new_config
