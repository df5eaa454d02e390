#pragma once

#include <optional>
#include <span>

#include "core/ops/norm.h"
#include "core/ops/reduction.h"

namespace ashlar::ops {

/// The norm of some heads of a row.
struct HeadNorm {
  NormWeights weights;
  NormVariant variant;
  /// [D] weights that all heads of the model have, whose gradient is partial over the tensor group; otherwise a slice
  /// of the model's, as wide as the heads: [heads*D] or [heads, D].
  bool shared_weights = true;
  /// One norm over all heads of the part, those of other ranks included, instead of one each.
  bool across = false;
};

/// Heads [first, first + heads) of x, normed or as they are. Heads before `first` are as wide as the call says.
struct HeadPart {
  int64_t first = 0, heads = 0;
  std::optional<HeadNorm> norm;
  int64_t head_dim = 0;  ///< of these heads; 0: the call's
};

/// x [N, columns of this rank's heads] -> the parts side by side. Parts may take the same heads. `ranks`, null
/// on one, outlives the tape: statistics of norms across heads are summed over it, forward and backward, by one message
/// each (two forward for layernorm). Where several ranks hold the same heads each has a part of their gradient: they
/// count as often as they are held, in the mean and in its gradient, which is the mean over the heads that there are.
Var norm_heads(const Ctx& ctx, const Var& x, int64_t head_dim, std::span<const HeadPart> parts, Reduction* ranks);

}  // namespace ashlar::ops
