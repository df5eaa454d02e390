#pragma once

#include <string>
#include <vector>

#include "core/optim/optimizer.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// Sums of squares over all ranks, each element of the model once, in fp64: a tensor's parts are added over the tensor
/// ranks, then the replicas, then the stages, each in rank order; tensors in global-name order. On pipelines alone the
/// same bits as one rank.
class GlobalNorm {
 public:
  /// Called by all ranks of `mesh`, which must outlive it, like the store.
  GlobalNorm(const nn::ParameterStore& store, mesh::Mesh& mesh);

  /// Called by all ranks: the norm of what `ranges` (this rank's, of its counted tensors and of copies) say of `flat
  /// buffer`. `squares` are those of names().
  optim::GradNorm of(const Ctx& ctx, std::span<const nn::ShardedRange> ranges, const nn::FlatTensor& buffer) const;

  const std::vector<std::string>& names() const { return names_; }        ///< of all tensors of the model, ascending
  const std::vector<int64_t>& num_elements() const { return elements_; }  ///< of those

 private:
  const nn::ParameterStore& store_;
  mesh::Mesh& mesh_;
  std::vector<std::string> names_;
  std::vector<int64_t> elements_;
  std::vector<size_t> place_;  // in names_, of each tensor of the store
};

}  // namespace ashlar::zero
