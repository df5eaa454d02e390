#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "launch/training/engine.h"

namespace ashlar::inference {

/// Reads tokens with an engine and says what may come next, over all ranks of one replica: hidden rows go from stage to
/// stage. Calls are made by all ranks, with the same arguments.
class Decoder {
 public:
  /// For texts of at most `max_tokens`. Without `use_cache` every call runs the whole text again, as training would.
  Decoder(training::Engine& engine, int64_t max_tokens, bool use_cache);

  /// Logits [vocab_padded] of the token behind `text`, given to the last stage only (elsewhere empty). `text` is the
  /// text of the call before and more; after `forget` any text.
  std::vector<double> next_logits(std::span<const int32_t> text);
  void forget();
  bool on_last_stage() const { return engine_.mesh().last_stage(); }

 private:
  training::Engine& engine_;
  std::optional<model::KvCache> cache_;
};

}  // namespace ashlar::inference
