#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "launch/training/engine.h"

namespace ashlar::inference {

/// Computes the logits of the next token with an engine, over all ranks of one replica. Hidden rows are sent from stage
/// to stage. Calls are made by all ranks, with the same arguments.
class Decoder {
 public:
  /// `max_tokens`: the longest text. Without `use_cache` every call recomputes the whole text, as training does.
  Decoder(training::Engine& engine, int64_t max_tokens, bool use_cache);

  /// Logits [vocab_padded] of the token after `text`, on the last stage only (empty elsewhere). `text` must extend the
  /// text of the previous call; after `forget` it may be any text.
  std::vector<double> next_logits(std::span<const int32_t> text);
  void forget();
  bool on_last_stage() const { return engine_.mesh().last_stage(); }

 private:
  training::Engine& engine_;
  std::optional<model::KvCache> cache_;
};

}  // namespace ashlar::inference
