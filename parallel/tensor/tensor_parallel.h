#pragma once

#include <string>
#include <vector>

#include "core/nn/parameter.h"
#include "parallel/comm/communicator.h"
#include "parallel/model/model_config.h"

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
  comm::Communicator* group = nullptr;     ///< never null; SelfComm on one rank
  comm::Communicator* kv_group = nullptr;  ///< ranks that share a KV head; null while there are enough KV heads
  bool sequence_parallel = false;          ///< rows between the blocks' products are sharded over the group

  int64_t rank() const { return group->rank(); }
  int64_t size() const { return group->size(); }
  /// Rows of the residual stream that this rank holds of N.
  int64_t local_rows(int64_t N) const { return sequence_parallel ? N / size() : N; }
  /// The same slices with all rows on every rank, as decoding needs them.
  TensorParallel with_whole_rows() const { return {.group = group, .kv_group = kv_group}; }
};

/// This rank's part of the dimensions that tensor parallelism splits.
struct Slices {
  nn::Extent heads;             ///< query heads
  nn::Extent kv_heads;          ///< KV heads; with more ranks than KV heads several ranks hold the same one
  nn::Extent ffn;               ///< of d_ff
  nn::Extent vocab;             ///< of the padded vocabulary
  bool kv_main_replica = true;  ///< this rank is the first that holds its KV heads
  uint32_t kv_grad_partial_axes = 0;
};

/// Why a model cannot be cut into `size` slices: one text for each thing in the way, with its values and what would do.
/// Empty when it can: n_heads % size == 0, n_kv_heads % size == 0 or size % n_kv_heads == 0, and d_ff and the padded
/// vocabulary divide by it.
std::vector<std::string> slicing_problems(const model::ModelConfig& config, int64_t size);

/// Splits heads, KV heads, d_ff and the padded vocabulary over `size` ranks; Bug when there are slicing_problems.
Slices slices_of(const model::ModelConfig& config, int64_t size, int64_t rank);

}  // namespace ashlar::tensor
