#include "launch/new_config/training_rules.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/new_config/amounts.h"
#include "parallel/model/flops.h"

namespace ashlar::new_config {

namespace {

constexpr double kLeastLr = 1e-5, kMostLr = 1e-2;
constexpr double kMostBatchTokens = 16'000'000;  // Llama 3 405B's

/// Rounds a rate to two digits.
double two_digits(double x) {
  const double unit = std::pow(10, std::floor(std::log10(x)) - 1);
  return unit * std::round(x / unit);
}

/// Sequences of a step: a power of two times the ranks, so that any number of replicas and many micro-batches divide
/// it; with more ranks than the rule's batch, times the largest divisor of the ranks that is not above the batch.
int64_t global_batch_for(double sequences, int64_t ranks) {
  int64_t unit = ranks;
  if (static_cast<double>(ranks) > 2 * sequences)
    while (unit > 1 && (ranks % unit != 0 || static_cast<double>(unit) > sequences)) --unit;
  const double powers = std::log2(sequences / static_cast<double>(unit));
  return unit << std::max<int64_t>(0, std::llround(powers));
}

/// Flops of training on a token, without the head, as DeepSeek LLM counts them.
double layer_flops_per_token(const model::ModelConfig& m, int64_t sequence_length) {
  const model::FlopsPerToken flops = model::flops_per_token(m, sequence_length);
  return flops.total_full() - 6.0 * static_cast<double>(m.vocab_padded() * m.table_width());
}

}  // namespace

int64_t sequence_length_for(const Family& family, int64_t parameters) {
  const double active =
      static_cast<double>(parameters) * static_cast<double>(family.active) / static_cast<double>(family.parameters);
  const int64_t length = active < 3e6 ? 256 : active < 30e6 ? 512 : active < 200e6 ? 1024 : active < 1e9 ? 2048 : 4096;
  return std::min(length, family.config.train.sequence_length);
}

double batch_tokens_for(double compute) { return 0.2920 * std::pow(compute, 0.3271); }
double lr_for(double compute) { return 0.3118 * std::pow(compute, -0.1250); }

TrainingRules training_rules(const TrainingRequest& request) {
  TrainingRules r;
  const int64_t T = request.sequence_length;
  r.compute = layer_flops_per_token(request.shape.model, T) * static_cast<double>(request.tokens);
  r.lr = two_digits(std::clamp(lr_for(r.compute), kLeastLr, kMostLr));
  r.batch_tokens = batch_tokens_for(r.compute);
  const double sequences =
      std::clamp(r.batch_tokens, static_cast<double>(T), kMostBatchTokens) / static_cast<double>(T);
  r.global_batch = global_batch_for(sequences, request.ranks);
  const int64_t step_tokens = r.global_batch * T;
  r.steps = std::max<int64_t>(1, std::llround(static_cast<double>(request.tokens) / static_cast<double>(step_tokens)));
  r.tokens = r.steps * step_tokens;
  if (r.steps < kLeastSteps)
    throw input_error("new", "option --tokens = ", grouped(request.tokens), ": expected at least ",
                      grouped(kLeastSteps * step_tokens), ", ", kLeastSteps, " steps of ", r.global_batch,
                      " sequences of ", T, " tokens; got ", r.steps, " steps; raise --tokens, or use fewer ranks");
  r.warmup_steps = std::clamp<int64_t>(r.steps / 20, 1, 2000);
  // About twenty checkpoints and validations, each on two million tokens at most.
  r.eval_every = r.checkpoint_every = std::min<int64_t>(1000, round_down_nicely(std::max<int64_t>(1, r.steps / 20)));
  r.eval_sequences = std::clamp<int64_t>(2'000'000 / T, 1, 512);
  r.log_every = r.steps >= 2000 ? 10 : 1;
  return r;
}

}  // namespace ashlar::new_config
