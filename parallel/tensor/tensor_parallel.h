#pragma once

#include <cstdint>

#include "parallel/comm/communicator.h"

namespace ashlar::tensor {

/// Groups of ranks over which a tensor's gradient is summed once backward is done: bits of
/// nn::ShardedTensor::grad_partial_axes.
enum PartialAxis : uint32_t {
  kPartialTensor = 1,   ///< the tensor group: gains of norms that see only this rank's rows (sequence parallel)
  kPartialKvGroup = 2,  ///< the ranks that hold the same KV head (more tensor ranks than KV heads)
  kPartialStages = 4,   ///< the stages that hold the same table (tied embeddings on a pipeline)
};

/// This rank's place in its tensor group: what the model needs to build and run its slice.
struct TensorParallel {
  comm::Communicator* group = nullptr;  ///< never null; SelfComm on one rank
  bool sequence_parallel = false;       ///< rows between the blocks' products are sharded over the group

  int64_t rank() const { return group->rank(); }
  int64_t size() const { return group->size(); }
  /// Rows of the residual stream that this rank holds of N.
  int64_t local_rows(int64_t N) const { return sequence_parallel ? N / size() : N; }
  /// The same slices with all rows on every rank, as decoding needs them.
  TensorParallel with_whole_rows() const { return {.group = group}; }
};

}  // namespace ashlar::tensor
