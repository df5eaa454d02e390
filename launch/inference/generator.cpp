#include "launch/inference/generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "launch/inference/decoder.h"
#include "parallel/comm/host.h"
#include "parallel/comm/try_on_all_ranks.h"

namespace ashlar::inference {

namespace {

constexpr uint64_t kSamplingRngStream = hash64("generate");

/// The drawn token, which the last stage sends to the other stages.
struct Drawn {
  int32_t id = 0;
  int32_t bad_id = -1;  ///< id with a non-finite logit, or -1
  double bad_logit = 0;
};

/// Returns the first id whose logit is not finite and that the model does not mask; -1 if there is none.
int32_t first_bad(std::span<const double> logits, const model::ModelConfig& config) {
  for (int32_t id = 0; id < config.vocab_size; ++id) {
    if (std::isfinite(logits[id])) continue;
    const auto& masked = config.masked_ids;
    if (std::ranges::find(masked, id) == masked.end()) return id;
  }
  return -1;
}

Drawn draw_token(std::vector<double> logits, const model::ModelConfig& config, const GenerateOptions& o, int64_t n) {
  if (const int32_t bad = first_bad(logits, config); bad >= 0) return {.bad_id = bad, .bad_logit = logits[bad]};
  for (const int32_t id : o.never) logits[id] = -std::numeric_limits<double>::infinity();
  const Philox::Counter words = Philox::block(o.sampling.seed, kSamplingRngStream, static_cast<uint64_t>(n));
  const double uniform = (static_cast<double>(words[0]) * 0x1p32 + words[1]) * 0x1p-64;
  return {.id = draw(sampling_distribution(logits, config.vocab_size, o.sampling), uniform)};
}

}  // namespace

std::vector<int32_t> ids_without_token(const data::Tokenizer& tokenizer, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < vocab; ++id)
    if (!tokenizer.has_token(static_cast<int32_t>(id))) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

void generate(training::Engine& engine, const GenerateOptions& o, const std::function<void(int32_t)>& emit) {
  ASHLAR_CHECK(!o.prompt.empty(), "generation needs at least one prompt token");
  const model::ModelConfig& config = engine.options().model;
  const int64_t wanted = static_cast<int64_t>(o.prompt.size()) + o.new_tokens;
  const int64_t limit = config.pos.type == model::PosType::kLearned ? config.pos.max_positions : wanted;
  const int64_t capacity = std::min({limit, wanted, o.most_context > 0 ? o.most_context : wanted});
  Decoder decoder(engine, capacity, o.use_cache);

  std::vector<int32_t> context = o.prompt;  // the tokens that the model reads
  const auto keep_newest = [&](int64_t n) {
    context.erase(context.begin(), context.end() - std::min<int64_t>(n, context.size()));
  };
  if (static_cast<int64_t>(context.size()) > capacity) keep_newest(capacity);

  for (int64_t n = 0; n < o.new_tokens; ++n) {
    std::vector<double> logits = decoder.next_logits(context);
    Drawn drawn;
    if (decoder.on_last_stage()) drawn = draw_token(std::move(logits), config, o, n);
    comm::ControlPlane& ranks = engine.mesh().control();
    drawn = comm::broadcast_value(ranks, drawn, ranks.size() - 1);  // the last rank is in the last stage
    if (drawn.bad_id >= 0) {
      throw comm::AllRanksError(
          ExitCode::kNonFinite, "generate",
          str_cat("token ", n, ": the logit of id ", drawn.bad_id, " is ", drawn.bad_logit,
                  ": the weights are finite, but their results in ", name_of(engine.options().dtype),
                  " are not; try --dtype fp32 or fp64, or another checkpoint"));
    }
    const int32_t id = drawn.id;
    emit(id);
    if (std::ranges::find(o.stop_ids, id) != o.stop_ids.end()) return;
    if (static_cast<int64_t>(context.size()) == capacity) {
      keep_newest(std::max<int64_t>(capacity / 2, 1) - 1);
      decoder.forget();
    }
    context.push_back(id);
  }
}

}  // namespace ashlar::inference
