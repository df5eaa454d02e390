#include "launch/commands/subcommands.h"

#include <functional>

#include "absl/strings/str_format.h"
#include "core/base/error_text.h"
#include "data/read/token_dataset.h"
#include "kernels/make_backend.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/config/run_config.h"
#include "launch/training/run_identity.h"
#include "parallel/model/flops.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::launch {

const char* const kParamsHelp =
    "ashlar params CONFIG [section.key=value ...]\n"
    "\n"
    "Parameters of a configuration by component, flops per token, the KV cache of\n"
    "train.sequence_length tokens, and every derived value with its rule. Nothing is allocated. The memory of\n"
    "a run: ashlar plan.\n"
    "vocab.size comes from the configuration or from the dataset of data.path. With neither, counts\n"
    "that depend on it are given per token id.\n";

namespace {

/// How the table of a model's parameters prints the count of a component.
struct TableFormat {
  std::function<std::string(int64_t)> fixed;   ///< prints a count that does not depend on the vocabulary
  std::function<std::string(int64_t)> per_id;  ///< prints a count of parameters per token id
  std::function<std::string(int64_t per_id)> total;
};

void print_table(const model::ParameterCount& count, const TableFormat& format, Log& log) {
  const auto row = [&](const char* name, const std::string& text) {
    log.info(absl::StrFormat("%-12s %s", name, text));
  };
  row("embedding", format.per_id(count.embedding));
  if (count.projections > 0) row("projections", format.fixed(count.projections));
  row("positions", format.fixed(count.positions));
  row("attention", format.fixed(count.attention));
  row("ffn", format.fixed(count.ffn));
  if (count.experts > 0) row("experts", format.fixed(count.experts));
  if (count.routers > 0) row("routers", format.fixed(count.routers));
  row("norms", format.fixed(count.norms));
  row("biases", format.fixed(count.biases));
  row("head", format.per_id(count.head));
  row("head_bias", format.per_id(count.head_bias));
  row("total", format.total(count.embedding + count.head + count.head_bias));
}

TableFormat shares_of(int64_t total) {
  const auto share = [total](int64_t n) { return absl::StrFormat("%16d  %5.1f%%", n, 100.0 * n / total); };
  return {.fixed = share, .per_id = share, .total = [=](int64_t) { return share(total); }};
}

/// The format for a model of unknown vocabulary size: counts per token id.
TableFormat by_vocabulary(int64_t total) {
  const auto number = [](int64_t n) { return absl::StrFormat("%16d", n); };
  return {
      .fixed = number,
      .per_id = [=](int64_t n) { return n == 0 ? number(n) : number(n) + " x vocab.size"; },
      .total = [=](int64_t per_id) { return absl::StrFormat("%s + %d x vocab.size", number(total - per_id), per_id); }};
}

std::string describe_kv_cache(const model::ModelConfig& m, int64_t tokens) {
  const model::KvElements n = model::kv_elements(m, tokens);
  const auto gigabytes = [](int64_t elements) {
    return absl::StrFormat("%.4g GB", 2e-9 * static_cast<double>(elements));
  };
  std::string text = absl::StrFormat("KV cache of %d tokens: %s in bf16, %d bytes per token", tokens, gigabytes(n.all),
                                     2 * n.all / tokens);
  if (n.seen < n.all) text += absl::StrFormat("; %s of it within the windows of its layers", gigabytes(n.seen));
  return text;
}

void print_costs_of_a_context(const config::RunConfig& c, Log& log) {
  const int64_t T = c.train.sequence_length;
  const model::FlopsPerToken f = model::flops_per_token(c.model, T);
  log.info(absl::StrFormat("attention at T = %d: %.4g flops per token counted in full, %.4g causal", T,
                           f.attention_full, f.attention_causal));
  log.info(describe_kv_cache(c.model, T));
}

}  // namespace

int run_params_command(Words words, Session& session) {
  Log& log = session.log;
  Arguments arguments("params", words);
  std::vector<std::string> files = arguments.positionals();
  const std::vector<std::string> overrides = take_overrides(files);
  arguments.expect(files, 1, "one configuration file", "; usage: ashlar params CONFIG [section.key=value ...]");
  config::RawConfig raw = config::read_config(files[0], overrides);
  const std::vector<config::DerivedValue> taken = training::apply_start_model(raw);
  config::Facts facts{.hardware_threads = kernels::usable_cores(), .purpose = config::Purpose::kModel};
  std::string reason = "data.path is not given";
  for (const auto& source : raw.data_sources()) {
    try {
      if (!facts.dataset_vocab_size)
        facts.dataset_vocab_size = data::TokenDataset(source.path).tokenizer().vocab_size();
    } catch (const Error& error) {
      reason = text_of(error);  // not an error: parameters can be counted without a dataset
    }
  }
  const bool unknown_vocabulary = !facts.dataset_vocab_size && !raw.given("vocab.size");
  if (unknown_vocabulary) facts.dataset_vocab_size = 1;
  config::Resolved resolved = config::resolve(raw, facts);
  resolved.derived.insert(resolved.derived.end(), taken.begin(), taken.end());
  const model::ModelConfig& m = resolved.config.model;
  const int64_t T = resolved.config.train.sequence_length;
  for (const auto& d : resolved.derived) {
    if (unknown_vocabulary && d.key == "vocab.size") continue;
    log.info(str_cat("derived: ", d.key, " = ", d.value, " (", d.rule, ")"));
  }
  if (unknown_vocabulary) {
    model::ModelConfig one = m;
    one.vocab_size = one.vocab_pad_to = 1;
    const model::ParameterCount count = model::count_parameters(one);
    print_table(count, by_vocabulary(count.total()), log);
    log.info(str_cat("vocab.size is not given, and ", reason,
                     "; set vocab.size for the whole count, e.g. vocab.size=257 for the bytes tokenizer"));
    if (T > 0) log.info(describe_kv_cache(m, T));
    return 0;
  }

  const model::ParameterCount count = model::count_parameters(m);
  print_table(count, shares_of(count.total()), log);
  if (m.vocab_padded() != m.vocab_size) {
    log.info(absl::StrFormat("the vocabulary of %d is padded to %d rows; the padding is masked and counted above",
                             m.vocab_size, m.vocab_padded()));
  }
  if (count.experts > 0) {
    const int64_t active = model::active_parameters(m);
    log.info(absl::StrFormat("active: %d, those that a token meets (%d of %d experts of a layer)", active, m.moe.top_k,
                             m.moe.experts));
  }
  log.info(absl::StrFormat("in matrix products: %d (6 N = %.4g flops per token)", model::matmul_parameters(m),
                           6.0 * static_cast<double>(model::matmul_parameters(m))));
  if (T > 0) print_costs_of_a_context(resolved.config, log);
  return 0;
}

}  // namespace ashlar::launch
