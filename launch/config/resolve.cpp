#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "absl/strings/str_format.h"
#include "kernels/make_backend.h"
#include "launch/config/resolver.h"
#include "launch/config/schema_model_table.h"
#include "parallel/model/attention_options.h"
#include "parallel/model/expert_layout.h"
#include "parallel/model/slices.h"
#include "parallel/pipeline/partition.h"

namespace ashlar::config {
namespace {

void resolve_run(Resolver& r) {
  const RunSection& run = r.config().run;
  r.derive("run.dir", r.raw().run_dir(), {}, "runs/ and the name of the config file");
  if (r.valid({"run.dir"}) && !r.given("run.dir")) {
    if (auto error = check_value(schema()[key_index("run.dir")], run.dir, "derived from the file's name"))
      r.error(*error);
  }
  const Facts& facts = r.facts();
  r.derive(
      "run.threads", std::clamp<int64_t>(facts.hardware_threads / facts.local_ranks, 1, 4096), {},
      str_cat(facts.hardware_threads, " cores / ", facts.local_ranks, facts.local_ranks == 1 ? " rank" : " ranks"));
}

void resolve_mesh(Resolver& r) {
  const MeshSection& mesh = r.config().mesh;
  const int64_t ranks = r.facts().ranks;
  r.derive("mesh.data", std::max<int64_t>(1, ranks / (mesh.tensor * mesh.pipeline)), {"mesh.tensor", "mesh.pipeline"},
           "ranks / (mesh.tensor * mesh.pipeline)");
  if (r.facts().purpose == Purpose::kModel) return;

  bool divide = true;
  const auto check_divisor = [&](std::string_view key, int64_t size) {
    if (ranks % size == 0) return;
    r.error(key, " = ", size, ": expected a divisor of the number of ranks, ", ranks, "; set ", key,
            " = 1, or start another number of ranks (mpirun -np)");
    r.mark_invalid(key);
    divide = false;
  };
  check_divisor("mesh.tensor", mesh.tensor);
  check_divisor("mesh.pipeline", mesh.pipeline);
  check_divisor("mesh.data", mesh.data);
  if (divide && r.valid({"mesh.tensor", "mesh.pipeline", "mesh.data"}) &&
      mesh.tensor * mesh.pipeline * mesh.data != ranks)
    r.error("mesh.data = ", mesh.data, ": expected mesh.tensor * mesh.pipeline * mesh.data to be the number of ranks, ",
            ranks, ", got ", mesh.tensor, " * ", mesh.pipeline, " * ", mesh.data,
            "; change mesh.tensor, mesh.pipeline, mesh.data or the number of ranks");
}

/// Checks mesh.expert against the replicas and the model's experts.
void check_expert_axis(Resolver& r) {
  const RunConfig& c = r.config();
  const int64_t expert = c.mesh.expert, experts = c.model.moe.experts;
  if (expert == 1 || !r.valid({"mesh.expert", "mesh.data", "mesh.tensor", "moe.experts", "model.n_layers"})) return;
  if (c.model.expert_layers() == 0) {
    r.error("mesh.expert = ", expert, ": expected 1, since no layer has experts (moe.experts = ", experts,
            "); set mesh.expert = 1, or moe.experts");
    return;
  }
  const int64_t most = model::most_expert_ranks(c.model, c.mesh.tensor);
  std::string choices;
  for (int64_t n = 1; n <= std::min(c.mesh.data, most); ++n)
    if (c.mesh.data % n == 0) choices += str_cat(choices.empty() ? "" : ", ", n);
  if (c.mesh.data % expert == 0 && expert <= most) return;
  r.error("mesh.expert = ", expert, ": expected a divisor of mesh.data = ", c.mesh.data, " that is at most ",
          most < experts ? "moe.experts / mesh.tensor = " : "moe.experts = ", most, "; choose from ", choices,
          ", or change mesh.data");
}

void resolve_train(Resolver& r) {
  const TrainSection& t = r.config().train;
  const MeshSection& mesh = r.config().mesh;
  const bool valid = r.valid({"train.global_batch", "mesh.data", "train.micro_batch"});
  const bool divides = t.global_batch % mesh.data == 0;
  if (valid && !divides)
    r.error("train.global_batch = ", t.global_batch, ": expected a multiple of mesh.data = ", mesh.data,
            ", since every replica gets the same number of sequences; change train.global_batch or mesh.data");
  if (r.given("train.micro_batch") || t.global_batch > 0) {
    r.derive("train.micro_batch", std::max<int64_t>(1, t.global_batch / mesh.data), {"train.global_batch", "mesh.data"},
             "train.global_batch / mesh.data");
    if (valid && divides && t.global_batch > 0 && t.global_batch % (t.micro_batch * mesh.data) != 0)
      r.error("train.micro_batch = ", t.micro_batch,
              ": expected a divisor of train.global_batch / mesh.data = ", t.global_batch / mesh.data,
              "; change train.micro_batch, train.global_batch or mesh.data");
  }
  constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
  if (r.valid({"train.micro_batch", "train.sequence_length"}) && t.sequence_length > 0 &&
      t.micro_batch > kMostRows / t.sequence_length)
    r.error("train.micro_batch = ", t.micro_batch, ": expected train.micro_batch * train.sequence_length of at most ",
            kMostRows, " tokens, got ", t.micro_batch, " * ", t.sequence_length,
            "; lower train.micro_batch (train.global_batch can stay: more micro-batches are accumulated)");
}

/// Converts the deprecated key train.eval_batches to train.eval_sequences.
void resolve_evaluation(Resolver& r) {
  if (!r.given("train.eval_batches")) return;
  const TrainSection& t = r.config().train;
  const int64_t batches = r.integer("train.eval_batches"), micro_batch = std::max<int64_t>(t.micro_batch, 1);
  const int64_t replicas = r.config().mesh.data;
  if (r.given("train.eval_sequences")) {
    r.error("train.eval_batches = ", batches, " and train.eval_sequences = ", t.eval_sequences,
            " are both set: expected only one; remove train.eval_batches (deprecated)");
    return;
  }
  const KeySpec& spec = schema()[key_index("train.eval_sequences")];
  const double sequences = static_cast<double>(batches) * static_cast<double>(micro_batch * replicas);
  r.derive("train.eval_sequences", static_cast<int64_t>(std::min(sequences, spec.high)),
           {"train.eval_batches", "train.micro_batch", "mesh.data"},
           str_cat("train.eval_batches ", batches, " * train.micro_batch ", micro_batch, " * mesh.data ", replicas,
                   "; train.eval_batches, an older key, counts micro-batches; the run keeps the number of sequences"));
  r.derived().back().told = true;
}

/// Checks which checkpoints stay against the steps at which the run saves and validates.
void check_checkpoints(Resolver& r) {
  const CheckpointSection& c = r.config().checkpoint;
  if (r.facts().purpose != Purpose::kTrain || !r.valid({"checkpoint.every"})) return;
  if (r.valid({"checkpoint.keep_every"}) && c.keep_every > 0 && (c.every == 0 || c.keep_every % c.every != 0))
    r.error("checkpoint.keep_every = ", c.keep_every, ": expected a multiple of checkpoint.every = ", c.every,
            c.every == 0 ? ", which saves only after the last step; set checkpoint.every" : "; change one of them");
  if (!r.valid({"checkpoint.keep_best", "train.eval_every", "train.steps"}) || c.keep_best == 0) return;
  const TrainSection& t = r.config().train;
  const bool meet = c.every > 0 && t.eval_every > 0 && std::lcm(c.every, t.eval_every) <= t.steps;
  if (!meet)
    r.error("checkpoint.keep_best = ", c.keep_best, ": expected steps that are both saved and validated, got none in ",
            t.steps, " steps with checkpoint.every = ", c.every, " and train.eval_every = ", t.eval_every,
            "; set both, one a multiple of the other");
}

void check_sample(Resolver& r) {
  const RunConfig& c = r.config();
  if (r.facts().purpose != Purpose::kTrain) return;
  if (c.log.sample && (c.mesh.sequence_parallel || c.mesh.virtual_stages > 1))
    r.error(
        "log.sample: expected mesh.sequence_parallel = false and mesh.virtual_stages = 1, which generating needs; "
        "remove log.sample and use `ashlar generate` with a checkpoint");
}

void check_traced_steps(Resolver& r) {
  const RunConfig& c = r.config();
  if (r.facts().purpose != Purpose::kTrain || !r.valid({"log.trace_steps", "train.steps"})) return;
  for (const int64_t step : c.log.trace_steps)
    if (step > c.train.steps)
      r.error("log.trace_steps: expected steps from 1 to train.steps = ", c.train.steps, ", got ", step,
              "; remove it, or raise train.steps");
}

/// Checks the mesh against the model and the batch. resolve_mesh has already compared the product of the mesh sizes
/// with the number of ranks.
void check_mesh(Resolver& r) {
  if (r.facts().purpose == Purpose::kModel) return;
  const RunConfig& c = r.config();
  if (r.valid({"mesh.tensor", "model.n_heads", "model.n_kv_heads", "attn.global_n_kv_heads", "model.d_ff", "vocab.size",
               "vocab.pad_to"})) {
    for (const std::string& problem : model::slicing_problems(c.model, c.mesh.tensor)) r.error(problem);
  }
  if (r.valid({"mesh.pipeline", "mesh.virtual_stages", "model.n_layers"})) {
    const std::string problem = pipeline::chunks_problem(c.model.n_layers, c.mesh.pipeline, c.mesh.virtual_stages);
    if (!problem.empty()) r.error(problem);
  }
  check_expert_axis(r);
  const int64_t rows = c.train.micro_batch * c.train.sequence_length;
  if (c.mesh.sequence_parallel && rows % c.mesh.tensor != 0 &&
      r.valid({"mesh.tensor", "train.micro_batch", "train.sequence_length"}))
    r.error("mesh.sequence_parallel = true: expected train.micro_batch * train.sequence_length to be a multiple of ",
            "mesh.tensor = ", c.mesh.tensor, ", got ", rows,
            "; change one of these keys, or set mesh.sequence_parallel = false");
}

/// If train.attention = "cudnn", checks that cuDNN's attention supports the configuration. The device and the
/// version of cuDNN are checked later, when the run opens the device.
void check_attention(Resolver& r) {
  const RunConfig& c = r.config();
  if (r.facts().purpose == Purpose::kModel || c.train.attention != AttentionKernels::kCudnn) return;
  const auto refuse = [&](const auto&... reason) {
    r.error("train.attention = \"cudnn\": ", reason..., "; choose \"auto\" or \"own\"");
  };
  if (r.valid({"run.device"}) && name_of(c.run.device) != "cuda")
    refuse("expected run.device = \"cuda\", got \"", name_of(c.run.device), "\"");
  if (!r.valid({"run.dtype", "train.sequence_length", "train.micro_batch", "model.n_heads", "model.n_kv_heads",
                "model.head_dim", "model.n_layers", "attn.global_head_dim", "attn.global_n_kv_heads",
                "attn.window_cycle", "dropout.attn", "data.document_mask"}) ||
      c.train.sequence_length <= 0)
    return;
  const int64_t B = c.train.micro_batch, T = c.train.sequence_length;
  const ScoreChange scores = model::score_change(c.model);
  for (int64_t layer = 0; layer < c.model.n_layers; ++layer) {  // cuDNN must support every layer
    const model::LayerHeads heads = model::layer_heads(c.model, layer);
    AttentionShape shape{.mask = model::attention_mask(c.model, layer),
                         .scores = scores,
                         .B = B,
                         .T_q = T,
                         .T_kv = T,
                         .H = c.model.n_heads,
                         .G = heads.n_kv_heads,
                         .D = heads.head_dim,
                         .D_v = heads.v_head_dim,
                         .dropout = {.p = c.model.dropout.attn}};
    if (c.data.document_mask) shape.mask.doc_start = {.rows = B, .cols = T, .stride = T};
    const std::string reason = cudnn::refusal(shape, c.run.dtype);
    if (reason.empty()) continue;
    refuse(reason);
    break;
  }
}

void resolve_optimizer(Resolver& r) {
  const optim::OptimizerKind kind = r.config().optimizer.rule.kind;
  for (const KeySpec& spec : schema()) {
    if (is_of_optimizer(spec) && applies(spec, r.config()))
      r.derive(spec.name(), default_of_optimizer(spec, kind), {"optimizer.kind"},
               str_cat("optimizer.kind ", optim::name_of(kind)));
  }
}

/// Refuses values that are valid as real numbers but too extreme for A, the type of the optimizer's moments. With such
/// values AdamW would divide 0 by 0, take far too large steps, or not change the weights.
template <typename A>
void check_optimizer_numbers(Resolver& r, const OptimizerSection& o, const char* type) {
  using Limits = std::numeric_limits<A>;
  const double beta1 = o.rule.beta1, beta2 = o.rule.beta2, eps = o.rule.eps;
  for (const auto& [key, beta] : {std::pair("optimizer.beta1", beta1), std::pair("optimizer.beta2", beta2)}) {
    if (r.valid({key, "run.dtype"}) && static_cast<A>(beta) >= A{1})
      r.error(key, " = ", value_text(beta), ": expected at most ",
              value_text(static_cast<double>(std::nextafter(A{1}, A{0}))), ", since the given value rounds to 1 in ",
              type, ", the dtype of the moments, which would then never decay; lower ", key);
  }
  if (r.valid({"optimizer.lr", "run.dtype"}) && o.lr > 0 && o.lr < Limits::min())
    r.error("optimizer.lr = ", value_text(o.lr), ": expected at least ", value_text(static_cast<double>(Limits::min())),
            ", the smallest normal number of ", type,
            "; with a smaller rate no weight would change; raise optimizer.lr");
  const bool has_eps = applies(schema()[key_index("optimizer.eps")], r.config());
  if (!has_eps || !r.valid({"optimizer.kind", "optimizer.beta2", "run.dtype"}) || beta2 >= 1) return;
  // `trace` is the smallest gradient whose square does not underflow in v, the second moment; `least` is slightly
  // larger and has two digits. For smaller gradients v is 0 and the step is m / eps, where m is the first moment.
  const double trace = std::sqrt(static_cast<double>(Limits::denorm_min()) / (1 - beta2));
  const double least = std::stod(absl::StrFormat("%.1e", 1.05 * trace));
  if (r.valid({"optimizer.eps"}) && eps < least)
    r.error("optimizer.eps = ", value_text(eps), ": expected at least ", value_text(least), "; in ", type,
            " the square of a gradient below ", value_text(least),
            " adds 0 to AdamW's second moment v, so the step would be m / eps (m is the first moment), which is too ",
            "large with the given eps; raise optimizer.eps");
  if (r.valid({"optimizer.clip"}) && o.clip > 0 && o.clip < least)
    r.error("optimizer.clip = ", value_text(o.clip), ": expected 0 (off) or at least ", value_text(least),
            ", since the squares of smaller gradients add 0 to AdamW's second moment in ", type,
            "; raise optimizer.clip");
}

void check_optimizer(Resolver& r) {
  if (r.facts().purpose == Purpose::kModel) return;  // no optimizer is used
  if (r.config().run.dtype == DType::kFloat64)
    check_optimizer_numbers<double>(r, r.config().optimizer, "fp64");
  else
    check_optimizer_numbers<float>(r, r.config().optimizer, "fp32");
}

void resolve_schedule(Resolver& r) {
  ScheduleSection& s = r.config().schedule;
  const int64_t steps = r.config().train.steps;
  r.derive("schedule.warmup_steps", std::min<int64_t>(2000, steps / 20), {"train.steps"},
           "train.steps / 20, at most 2000");
  const bool valid = r.valid({"train.steps", "schedule.warmup_steps", "schedule.kind"}) && steps > 0;
  if (valid && s.warmup_steps > steps)
    r.error("schedule.warmup_steps = ", s.warmup_steps, ": expected at most train.steps = ", steps,
            r.origin("schedule.warmup_steps"), "; lower schedule.warmup_steps or raise train.steps");
  if (s.kind == LrScheduleKind::kConstant) s.min_ratio = 1;
  const bool decays = applies(schema()[key_index("schedule.decay_steps")], r.config());
  if (!decays || (!r.given("schedule.decay_steps") && steps == 0)) return;
  const int64_t after_warmup = std::max<int64_t>(1, steps - s.warmup_steps);
  if (s.kind == LrScheduleKind::kWsd) {
    r.derive("schedule.decay_steps", std::clamp<int64_t>(steps / 5, 1, after_warmup),
             {"train.steps", "schedule.warmup_steps", "schedule.kind"}, "train.steps / 5");
    if (valid && r.valid({"schedule.decay_steps"}) && s.warmup_steps <= steps && s.decay_steps > after_warmup)
      r.error("schedule.decay_steps = ", s.decay_steps, ": expected at most ", after_warmup,
              " (train.steps - schedule.warmup_steps, or 1 if that is 0)", r.origin("schedule.decay_steps"),
              "; lower schedule.decay_steps or schedule.warmup_steps");
  } else {
    r.derive("schedule.decay_steps", after_warmup, {"train.steps", "schedule.warmup_steps", "schedule.kind"},
             "train.steps - schedule.warmup_steps");
  }
}

}  // namespace

Resolved resolve(const RawConfig& raw, const Facts& facts) {
  if (!raw.values().is_toml) throw ConfigError(raw.errors());
  Resolver r(raw.values(), facts);
  resolve_run(r);
  resolve_model(r);
  resolve_mesh(r);
  resolve_train(r);
  resolve_evaluation(r);
  check_checkpoints(r);
  check_sample(r);
  check_traced_steps(r);
  check_mesh(r);
  check_attention(r);
  resolve_optimizer(r);
  check_optimizer(r);
  resolve_schedule(r);
  if (!r.errors().empty()) throw ConfigError(r.errors());
  return {std::move(r.config()), std::move(r.derived())};
}

ConfigError::ConfigError(const std::vector<std::string>& errors)
    : Error(ExitCode::kInput, FullText{[&] {
              std::string text;
              for (const std::string& e : errors)
                text += str_cat(text.empty() ? "" : "\n", "[config] ", on_one_line(e));
              return text;
            }()}),
      errors_(errors) {}

}  // namespace ashlar::config
