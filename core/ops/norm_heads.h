#pragma once

#include <optional>
#include <span>

#include "core/ops/norm.h"
#include "core/ops/reduction.h"

namespace ashlar::ops {

/// Parameters of the norm of some heads of a row.
struct HeadNorm {
  NormWeights weights;
  NormVariant variant;
  /// True: [D] weights shared by all heads of the model, with a partial gradient over the tensor group. False: a slice
  /// of the model's weights, as wide as the heads: [heads*D] or [heads, D].
  bool shared_weights = true;
  /// One norm over all heads of the part, including those of other ranks, instead of one per head.
  bool across = false;
};

/// Heads [first, first + heads) of x, with a norm or unchanged. Heads before `first` have the width of the call.
struct HeadPart {
  int64_t first = 0, heads = 0;
  std::optional<HeadNorm> norm;
  int64_t head_dim = 0;  ///< width of these heads; 0: the call's
};

/// x [N, columns of this rank's heads] -> the parts side by side. Parts may share heads. `ranks`, null on one rank,
/// must outlive the tape: statistics of norms across heads are summed over it, forward and backward, by one message
/// each (two forward for layernorm). If several ranks hold the same heads, each has a partial gradient. Such heads
/// count once per rank, in the mean and in its gradient; the result equals the mean over distinct heads.
Var norm_heads(const Ctx& ctx, const Var& x, int64_t head_dim, std::span<const HeadPart> parts, Reduction* ranks);

}  // namespace ashlar::ops
