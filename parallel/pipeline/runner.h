#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"

namespace ashlar::pipeline {

/// A tensor of each micro-batch that one chunk hands to the next, and whose gradient comes back: storage dtype, of the
/// same shape for all micro-batches and all chunks.
struct BoundaryTensor {
  std::string name;
  Shape shape;
};
/// Values or gradients of a micro-batch, in the order of its boundary tensors; none where nothing crosses.
using BoundaryValues = std::vector<Tensor>;

/// The computing half of a stage: forward and backward of one micro-batch on one chunk. Knows nothing of order and
/// ranks; what lies between the two halves of a micro-batch is the runner's to keep.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// What the chunk before hands on (nothing on the first chunk) -> what this one does (nothing from the last, whose
  /// result is the loss). Without `training` nothing is kept.
  virtual BoundaryValues forward(int64_t chunk, int64_t micro_batch, const BoundaryValues& inputs, bool training) = 0;
  /// Gradients of forward's result (none where it was the loss) -> those of its inputs (none on the first chunk). With
  /// `defer` the gradients of matrices are queued.
  virtual BoundaryValues backward(int64_t chunk, int64_t micro_batch, const BoundaryValues& grads, bool defer) = 0;
  /// Runs what `backward` queued.
  virtual void backward_weight(int64_t chunk, int64_t micro_batch) = 0;
};

}  // namespace ashlar::pipeline
