#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/optim/grad_clip.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// Sums of squares of each tensor of the model over all ranks, in fp64; each element counts once. The parts of a tensor
/// are added over the tensor ranks, then the replicas, then the stages, each in rank order. With pipeline parallelism
/// alone the results have the same bits as on one rank.
class GlobalNorm {
 public:
  /// Called by all ranks of `mesh`, which must outlive it. `ranges`: this rank's owned ranges, of main replicas and of
  /// copies, which are skipped.
  GlobalNorm(const Ctx& ctx, const nn::ParameterStore& store, std::span<const nn::ShardedRange> ranges,
             mesh::Mesh& mesh);

  /// Called by all ranks. Queues the computation: the first sums, fp64, are those of names() in `buffer`; further
  /// elements of `sums` are also added over the ranks.
  void sum(const Ctx& ctx, const nn::FlatTensor& buffer, const Tensor& sums) const;
  /// Computes the sums of names() and returns them on the host, which waits. Called by all ranks.
  std::vector<double> sums_of(const Ctx& ctx, const nn::FlatTensor& buffer) const;

  const std::vector<std::string>& names() const { return names_; }  ///< names of all tensors of the model, ascending
  const std::vector<int64_t>& num_elements() const { return elements_; }  ///< their numbers of elements

 private:
  optim::SquaresTable table(const Ctx& ctx, std::span<const nn::ShardedRange> ranges, bool packed) const;

  mesh::Mesh& mesh_;
  std::vector<std::string> names_;
  std::vector<int64_t> elements_;
  std::vector<optim::SquaresTable> tables_;  // of flat buffers, of packed ones
};

}  // namespace ashlar::zero
