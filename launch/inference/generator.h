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
  std::vector<int32_t> stop_ids;  ///< any of them ends the text when drawn
  std::vector<int32_t> never;     ///< ids of the model that are never drawn: no token has them
  bool use_cache = true;          ///< false: every token runs the whole text again (for comparison)
  SamplingOptions sampling;
};

/// The ids below `vocab` that the tokenizer has no token for: rows that only pad the model, and gaps.
std::vector<int32_t> ids_without_token(const data::Tokenizer& tokenizer, int64_t vocab);

/// Draws tokens one by one and hands each to `emit`, on every rank of the engine's mesh, which is one replica. The
/// context is limited by learned positions: when it is full, the newest half of it is kept and read again. Token n of a
/// seed does not depend on anything but the text before it. A logit that is not finite ends it on all ranks with exit
/// code 4 (comm::AllRanksError): what would be drawn from it is no text of the model.
void generate(training::Engine& engine, const GenerateOptions& options, const std::function<void(int32_t)>& emit);

}  // namespace ashlar::inference
