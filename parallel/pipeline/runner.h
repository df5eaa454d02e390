#pragma once

#include <cstdint>

#include "core/tensor/tensor.h"

namespace ashlar::pipeline {

/// The computing half of a stage: forward and backward of one micro-batch on one chunk. Knows nothing of order and
/// ranks; what lies between the two halves of a micro-batch is the runner's to keep.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// Hidden rows [N_loc, C] of the chunk before (absent on the chunk with the embedding) -> those of this one (absent
  /// from the chunk with the head, whose result is the loss). Without `training` nothing is kept.
  virtual Tensor forward(int64_t chunk, int64_t micro_batch, const Tensor& input, bool training) = 0;
  /// Gradient of forward's result (absent where it was the loss) -> gradient of its input (absent with the embedding).
  /// With `defer` the gradients of matrices are queued.
  virtual Tensor backward(int64_t chunk, int64_t micro_batch, const Tensor& grad, bool defer) = 0;
  /// Runs what `backward` queued.
  virtual void backward_weight(int64_t chunk, int64_t micro_batch) = 0;
};

}  // namespace ashlar::pipeline
