#include "launch/inference/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "launch/inference/decoder.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::inference {

namespace {

constexpr uint64_t kSamplingSite = hash64("generate");

/// What the last stage tells the others of a token.
struct Drawn {
  int32_t id = 0;
  int32_t bad_id = -1;  ///< whose logit is not finite
  double bad_logit = 0;
};

/// The first id whose logit is not finite though the model does not mask it; -1: none.
int32_t first_bad(std::span<const double> logits, const model::ModelConfig& config) {
  for (int32_t id = 0; id < config.vocab_size; ++id) {
    if (std::isfinite(logits[id])) continue;
    const auto& masked = config.masked_ids;
    if (std::find(masked.begin(), masked.end(), id) == masked.end()) return id;
  }
  return -1;
}

Drawn draw_token(std::vector<double> logits, const model::ModelConfig& config, const GenerateOptions& o, int64_t n) {
  if (const int32_t bad = first_bad(logits, config); bad >= 0) return {.bad_id = bad, .bad_logit = logits[bad]};
  for (const int32_t id : o.never) logits[id] = -std::numeric_limits<double>::infinity();
  const Philox::Counter words = Philox::block(o.sampling.seed, kSamplingSite, static_cast<uint64_t>(n));
  const double uniform = (static_cast<double>(words[0]) * 0x1p32 + words[1]) * 0x1p-64;
  return {.id = draw(sampling_distribution(logits, config.vocab_size, o.sampling), uniform)};
}

}  // namespace

std::vector<double> sampling_distribution(std::span<const double> logits, int64_t vocab, const SamplingOptions& o) {
  std::vector<int32_t> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  std::vector<double> p(vocab, 0.0);
  if (o.temperature == 0) {
    p[ids[0]] = 1;
    return p;
  }
  const int64_t k = o.top_k > 0 ? std::min(o.top_k, vocab) : vocab;
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += p[ids[i]] = std::exp((logits[ids[i]] - logits[ids[0]]) / o.temperature);
  double reached = 0;
  int64_t kept = 0;
  while (kept < k && (kept == 0 || reached < o.top_p * sum)) reached += p[ids[kept++]];
  for (int64_t i = 0; i < vocab; ++i) p[ids[i]] = i < kept ? p[ids[i]] / reached : 0;
  return p;
}

std::vector<int32_t> ids_without_token(const data::Tokenizer& tokenizer, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < vocab; ++id)
    if (!tokenizer.has_token(static_cast<int32_t>(id))) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

int32_t draw(std::span<const double> distribution, double uniform) {
  int32_t last = 0;
  double below = 0;
  for (size_t i = 0; i < distribution.size(); ++i) {
    if (distribution[i] <= 0) continue;
    last = static_cast<int32_t>(i);
    below += distribution[i];
    if (uniform < below) return last;
  }
  return last;  // rounding left the sum a hair under one
}

void generate(training::Engine& engine, const GenerateOptions& o, const std::function<void(int32_t)>& emit) {
  ASHLAR_CHECK(!o.prompt.empty(), "generation needs a first token");
  const model::ModelConfig& config = engine.options().model;
  const int64_t wanted = static_cast<int64_t>(o.prompt.size()) + o.new_tokens;
  const int64_t limit = config.pos.type == model::PosType::kLearned ? config.pos.max_positions : wanted;
  const int64_t capacity = std::min(limit, wanted);
  Decoder decoder(engine, capacity, o.use_cache);

  std::vector<int32_t> context = o.prompt;  // what the model sees
  const auto keep_newest = [&](int64_t n) {
    context.erase(context.begin(), context.end() - std::min<int64_t>(n, context.size()));
  };
  if (static_cast<int64_t>(context.size()) > capacity) keep_newest(capacity);

  for (int64_t n = 0; n < o.new_tokens; ++n) {
    std::vector<double> logits = decoder.next_logits(context);
    Drawn drawn;
    if (decoder.on_last_stage()) drawn = draw_token(std::move(logits), config, o, n);
    comm::ControlPlane& ranks = engine.mesh().control();
    drawn = comm::broadcast_value(ranks, drawn, ranks.size() - 1);  // the last rank is of the last stage
    if (drawn.bad_id >= 0) {
      throw comm::AllRanksError(
          ExitCode::kNonFinite, "generate",
          str_cat("token ", n, ": the logit of id ", drawn.bad_id, " is ", drawn.bad_logit,
                  ": the weights are finite, what is computed from them in ", name_of(engine.options().dtype),
                  " is not; try --dtype fp32 or fp64, or another checkpoint"));
    }
    const int32_t id = drawn.id;
    emit(id);
    if (std::find(o.stop_ids.begin(), o.stop_ids.end(), id) != o.stop_ids.end()) return;
    if (static_cast<int64_t>(context.size()) == capacity) {
      keep_newest(std::max<int64_t>(capacity / 2, 1) - 1);
      decoder.forget();
    }
    context.push_back(id);
  }
}

}  // namespace ashlar::inference
