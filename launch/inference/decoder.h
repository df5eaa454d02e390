#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "launch/training/engine.h"

namespace ashlar::inference {

/// Computes the logits of the next token with an engine, over all ranks of one replica. Each pipeline stage sends its
/// hidden states to the next stage. All ranks must call each function, with the same arguments.
class Decoder {
 public:
  /// `max_tokens` is the largest number of tokens in a text. If `use_cache` is false, there is no KV cache, and every
  /// call recomputes the whole text, as training does.
  Decoder(training::Engine& engine, int64_t max_tokens, bool use_cache);

  /// Returns the logits [vocab_padded] of the token after `text` on the last stage, and an empty vector on other
  /// stages. `text` must extend the text of the previous call, except after `forget`.
  std::vector<double> next_logits(std::span<const int32_t> text);
  void forget();
  bool on_last_stage() const { return engine_.mesh().last_stage(); }

 private:
  training::Engine& engine_;
  std::optional<model::KvCache> cache_;
};

}  // namespace ashlar::inference
