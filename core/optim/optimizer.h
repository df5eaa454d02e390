#pragma once

#include <vector>

#include "core/backend/optimizer.h"
#include "core/nn/flat_ranges.h"

namespace ashlar::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  bool decay_embeddings = true;  ///< token and position tables; matrices always decay, norms and biases never
};

/// The decay that a role gets.
double decay_of(nn::Role role, const AdamWOptions& options);

/// AdamW over the parts of a store that this rank owns: fp32 master weights (the values themselves when the storage is
/// fp32 or fp64) and two moments, packed. Values outside the parts are other ranks' to update.
class Optimizer {
 public:
  /// Allocates and zeroes the state of `owned`. Master weights start as zero (or as the values): call `initialize` or
  /// load them, then `copy_master_to_params`.
  Optimizer(const Ctx& ctx, nn::ParameterStore& store, const AdamWOptions& options, nn::FlatRanges owned);

  void initialize(const Ctx& ctx, uint64_t seed);  ///< initial weights into the owned master, then the params
  void copy_master_to_params(const Ctx& ctx);      ///< owned values = master rounded once
  /// One update of the owned parts from their main gradients by ctx.scalars and `clip` (ClipState).
  void step(const Ctx& ctx, const ConstView& clip);

  const nn::FlatRanges& owned() const { return owned_; }
  const std::vector<nn::ShardedRange>& ranges() const { return ranges_; }  ///< tensors within the owned parts, by name
  nn::FlatTensor master() const { return {.data = master_, .packed = separate_master_}; }
  nn::FlatTensor m() const { return {.data = m_, .packed = true}; }
  nn::FlatTensor v() const { return {.data = v_, .packed = true}; }
  const AdamWOptions& options() const { return options_; }

 private:
  nn::ParameterStore& store_;
  AdamWOptions options_;
  nn::FlatRanges owned_;
  std::vector<nn::ShardedRange> ranges_;
  Tensor master_, m_, v_;
  bool separate_master_;
  Tensor segments_;  // UpdateSegment of each range
};

}  // namespace ashlar::optim
