#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "launch/training/engine.h"

namespace ashlar::training {

/// A text of which the last `scored` tokens are predicted, each from the tokens before it.
struct ScoreRequest {
  std::vector<int32_t> tokens;
  int64_t scored = 0;  ///< less than tokens.size(); 0: no token, and log_prob 0
};

/// log_prob: sum of the log probabilities of the scored tokens. greedy: each of them is the model's first choice.
struct SequenceScore {
  double log_prob = 0;
  bool greedy = true;
};

/// A row of a batch: the tokens of a request without its last one. Requests with the same input share the row.
struct ScoreInput {
  int64_t length = 0;
  std::vector<size_t> requests;
};

/// Merges requests with equal inputs; those without scored tokens have none. The longest inputs come first, so that the
/// inputs of a batch have similar lengths and a batch that does not fit into memory fails at once. Equal lengths are in
/// the order of their tokens, so that continuations of the same context are neighbours.
std::vector<ScoreInput> score_inputs(std::span<const ScoreRequest> requests);

/// A forward pass of all replicas: each computes `slots` micro-batches of `rows` inputs, padded to `length` tokens.
/// Row b of slot s of replica d has the input first + (s * replicas + d) * rows + b, if there are that many.
struct ScoreRound {
  int64_t first = 0;
  int64_t slots = 1, rows = 1, length = 0;
};

struct ScoreLimits {
  int64_t tokens = 0;         ///< of a micro-batch, padding included; at least one input
  int64_t rows = 256;         ///< inputs of a micro-batch
  int64_t longest = 0;        ///< tokens of the longest input that the model can take
  int64_t replicas = 1;       ///< data parallel ranks, among which the inputs are divided
  int64_t slots = 1;          ///< micro-batches in flight, which have one shape
  int64_t rows_multiple = 1;  ///< ranks among which the tokens of a micro-batch are divided
};

std::vector<ScoreRound> plan_rounds(std::span<const ScoreInput> inputs, const ScoreLimits& limits);

/// Called by all ranks with the same requests and limits, of which replicas, slots and rows_multiple are taken from the
/// mesh. Returns the scores on all ranks. `stop` gets the number of inputs done and is called before each round; if it
/// returns non-zero on any rank, all ranks stop and return nothing.
std::optional<std::vector<SequenceScore>> score_sequences(Engine& engine, std::span<const ScoreRequest> requests,
                                                          ScoreLimits limits,
                                                          const std::function<int64_t(int64_t done)>& stop);

}  // namespace ashlar::training
