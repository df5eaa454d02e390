#pragma once

#include <string>
#include <vector>

#include "core/optim/optimizer.h"
#include "parallel/mesh/mesh.h"

namespace ashlar::zero {

/// Sums of squares over all ranks, each element of the model once, in fp64: a piece's parts are added over the tensor
/// ranks, then the replicas, then the stages, each in rank order; pieces in global-name order. On pipelines alone the
/// same bits as one rank.
class GlobalNorm {
 public:
  /// Called by all ranks of `mesh`, which must outlive it, like the store.
  GlobalNorm(const nn::ParameterStore& store, mesh::Mesh& mesh);

  /// Called by all ranks: the norm of what `ranges` (this rank's, of its counted pieces and of copies) say of `slab`.
  /// `squares` are those of names().
  optim::GradNorm of(const Ctx& ctx, std::span<const nn::PieceRange> ranges, const nn::SlabTensor& slab) const;

  const std::vector<std::string>& names() const { return names_; }        ///< of all pieces of the model, ascending
  const std::vector<int64_t>& num_elements() const { return elements_; }  ///< of those

 private:
  const nn::ParameterStore& store_;
  mesh::Mesh& mesh_;
  std::vector<std::string> names_;
  std::vector<int64_t> elements_;
  std::vector<size_t> place_;  // in names_, of each piece of the store
};

}  // namespace ashlar::zero
