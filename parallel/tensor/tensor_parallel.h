#pragma once

#include <cstdint>

#include "core/autograd/placement.h"
#include "core/nn/parameter.h"
#include "parallel/comm/communicator.h"

namespace ashlar::tensor {

/// This rank's position in its tensor group and in its expert group: what the model needs to build and run its slice.
struct TensorParallel {
  comm::Communicator* group = nullptr;         ///< never null; SelfComm on one rank
  comm::Communicator* expert_group = nullptr;  ///< ranks along Axis::kExpert; null: this rank alone
  bool sequence_parallel = false;              ///< rows of the residual stream are sharded over the group

  int64_t rank() const { return group->rank(); }
  int64_t size() const { return group->size(); }
  int64_t expert_rank() const { return expert_group == nullptr ? 0 : expert_group->rank(); }
  int64_t expert_size() const { return expert_group == nullptr ? 1 : expert_group->size(); }
  /// Number of rows of the residual stream on this rank, if there are N in total.
  int64_t local_rows(int64_t N) const { return sequence_parallel ? N / size() : N; }
  /// Placement of the residual stream.
  Placement residual_stream() const { return sequence_parallel ? Placement::kRowsSplit : Placement::kInvariant; }
  /// Axes of a tensor that every rank holds completely and that acts on rows of the residual stream. If the ranks have
  /// different rows, its gradient is summed over the group.
  nn::TensorAxes stream_axes() const {
    return sequence_parallel ? nn::replicated_and_summed_over(Axis::kTensor) : nn::replicated_over(Axis::kTensor);
  }
  /// Returns a copy with all rows on every rank, for decoding.
  TensorParallel with_whole_rows() const { return {.group = group, .expert_group = expert_group}; }
};

}  // namespace ashlar::tensor
