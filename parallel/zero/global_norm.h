#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/optim/grad_clip.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// Computes the sum of squares of each tensor of the model over all ranks, in fp64. Each element counts once. The parts
/// of a tensor are added over the tensor ranks, then the replicas, then the stages, each in rank order. With pipeline
/// parallelism alone, each tensor is summed on one rank, so the results have the same bits as without parallelism.
class GlobalNorm {
 public:
  /// Called by all ranks of `mesh`, which must outlive this object. `ranges` are the ranges of this rank's optimizer
  /// shard. Tensors of which this rank is not the main replica are skipped.
  GlobalNorm(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
             mesh::Mesh& mesh);

  /// Called by all ranks. Queues the computation. The first elements of `sums` (fp64) become the sums of squares of the
  /// tensors of names(), read from `buffer`. The caller may set further elements of `sums`; these are replaced by their
  /// sums over all ranks.
  void sum(const Ctx& ctx, const nn::FlatTensor& buffer, const Tensor& sums) const;
  /// Computes the sums of squares of the tensors of names() and waits for them on the host. Called by all ranks.
  std::vector<double> sums_of(const Ctx& ctx, const nn::FlatTensor& buffer) const;

  const std::vector<std::string>& names() const { return names_; }  ///< names of all tensors of the model, ascending
  const std::vector<int64_t>& num_elements() const { return elements_; }  ///< number of elements of each tensor

 private:
  optim::SquaresTable table(const Ctx& ctx, std::span<const nn::ShardedRange> ranges, bool packed) const;

  mesh::Mesh& mesh_;
  std::vector<std::string> names_;
  std::vector<int64_t> elements_;
  std::vector<optim::SquaresTable> tables_;  // [0] for flat buffers, [1] for packed buffers
};

}  // namespace ashlar::zero
