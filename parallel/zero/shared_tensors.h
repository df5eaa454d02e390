#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "core/nn/flat_ranges.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// Tensors of which several ranks of one replica hold the same part: a norm on every tensor rank, a KV head on several
/// tensor ranks, a tied table on two stages. The constructor gathers the names and positions of the parts, as hashes,
/// along the axes over which a tensor is replicated. So each rank knows which ranks hold a part.
class SharedTensors {
 public:
  /// Called by all ranks of `mesh`. `mesh` and `store` must outlive this object. Sets `main_replica` of the store's
  /// tensors: true on the first rank that holds a part. Throws Bug when ranks disagree on the ranks over which the
  /// gradient of a part is summed.
  SharedTensors(nn::ParameterStore& store, mesh::Mesh& mesh);

  /// For every tensor with `grad_summed_over`, sums the main gradients within `ranges` over the ranks that hold the
  /// same part. The gradients are then complete, and bitwise equal on these ranks. Ranks that share a part must own the
  /// same ranges of it. The sum takes one all_reduce per group of ranks, for any number of tensors. Called by all
  /// ranks, after the last backward of a step and the sum over the replicas.
  void sum_gradients(const Ctx& ctx, std::span<const nn::ShardedRange> ranges) const;

 private:
  /// Ranks that hold the same parts, and this rank's tensors whose gradients they sum.
  struct Group {
    comm::Communicator* ranks = nullptr;
    std::unique_ptr<comm::Communicator> made;  ///< owns `ranks`; null if `ranks` is a group of the mesh
    std::set<const nn::ShardedTensor*> tensors;
  };
  void find_groups(comm::Communicator& along, std::span<nn::ShardedTensor* const> tensors);

  const nn::ParameterStore& store_;
  std::vector<Group> groups_;
};

}  // namespace ashlar::zero
