#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"

namespace ashlar::pipeline {

/// A tensor that each chunk sends to the next chunk for each micro-batch, and whose gradient is sent back. It has the
/// storage dtype, and the same shape for all micro-batches and chunks.
struct BoundaryTensor {
  std::string name;
  Shape shape;
};
/// Values or gradients of the boundary tensors of a micro-batch, in their order; empty at the ends of the pipeline.
using BoundaryValues = std::vector<Tensor>;

/// The computation of a stage: forward and backward of one micro-batch on one chunk. It does not depend on the schedule
/// or the ranks. The runner stores the state between forward and backward.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// Outputs of the previous chunk (empty on the first chunk) -> outputs of this chunk (empty on the last chunk, whose
  /// result is the loss). Without `training` no state is stored.
  virtual BoundaryValues forward(int64_t chunk, int64_t micro_batch, const BoundaryValues& inputs, bool training) = 0;
  /// Gradients of forward's outputs (empty on the last chunk) -> gradients of forward's inputs (empty on the first
  /// chunk). With `defer` the weight gradients are left to backward_weight.
  virtual BoundaryValues backward(int64_t chunk, int64_t micro_batch, const BoundaryValues& grads, bool defer) = 0;
  /// Computes the weight gradients that `backward` deferred.
  virtual void backward_weight(int64_t chunk, int64_t micro_batch) = 0;
};

}  // namespace ashlar::pipeline
