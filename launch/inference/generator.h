#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "launch/inference/token_sampling.h"
#include "launch/training/engine.h"

namespace ashlar::inference {

struct GenerateOptions {
  std::vector<int32_t> prompt;  ///< at least one id
  int64_t new_tokens = 0;
  std::vector<int32_t> stop_ids;  ///< drawing one of these ids ends the text
  std::vector<int32_t> never;     ///< ids that are never drawn: the tokenizer has no token for them
  int64_t most_context = 0;       ///< largest number of tokens that the model reads; 0: no limit of its own
  bool use_cache = true;          ///< false: recompute the whole text for every token (for comparison)
  SamplingOptions sampling;
};

/// Returns the ids below `vocab` for which the tokenizer has no token, e.g. the ids of padding rows.
std::vector<int32_t> ids_without_token(const data::Tokenizer& tokenizer, int64_t vocab);

/// Draws tokens one by one and passes each to `emit`, on every rank of the engine's mesh. Replicas compute the same.
/// With learned positions, or with most_context, the context is limited: when it is full, its newest half is kept and
/// recomputed. For a given
/// seed, token n depends only on n and the text before it. A non-finite logit ends the generation on all ranks with
/// exit code 4 (comm::AllRanksError).
void generate(training::Engine& engine, const GenerateOptions& options, const std::function<void(int32_t)>& emit);

}  // namespace ashlar::inference
