#pragma once

#include <optional>
#include <span>
#include <string>
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
  /// load them, then `publish`.
  Optimizer(const Ctx& ctx, nn::ParameterStore& store, const AdamWOptions& options, nn::FlatRanges owned);

  void initialize(const Ctx& ctx, uint64_t seed);  ///< initial weights into the owned master, then publish
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
  std::vector<std::vector<AdamWSegment>> segments_;  // of each owned part, offsets from its start
};

/// Sums of squares of gradients.
struct GradNorm {
  double norm = 0;               ///< sqrt of the sum over all counted tensors
  std::string first_non_finite;  ///< name of the first tensor (by name) whose sum is NaN or infinite; empty if none
  std::vector<double> squares;   ///< sum of squares of each tensor, in the store's order
};

/// Sum of squares of each tensor's part within `ranges`, in the store's order: chunks of 4096 elements counted from the
/// tensor's start, cut where a range begins or ends; chunk sums added in order, in fp64. A tensor without a range has
/// 0.
std::vector<double> tensor_squares(const Ctx& ctx, const nn::ParameterStore& store,
                                   std::span<const nn::ShardedRange> ranges, const nn::FlatTensor& buffer);

/// Place of the first sum that is NaN or infinite.
std::optional<size_t> first_non_finite(std::span<const double> squares);

/// The norm of a flat buffer laid out like the store's (gradients; any other for statistics), each element once:
/// tensors in global-name order.
GradNorm grad_norm(const Ctx& ctx, const nn::ParameterStore& store, const Tensor& buffer);

/// Sum of squares of a contiguous tensor of any floating dtype, in fp64, chunks of 4096 added in order.
double sum_squares(const Ctx& ctx, const Tensor& t);

}  // namespace ashlar::optim
