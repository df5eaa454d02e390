#pragma once

#include <optional>
#include <span>

#include "core/ops/norm.h"
#include "core/ops/reduction.h"

namespace ashlar::ops {

/// Weights and options of the norm of some heads of a row.
struct HeadNorm {
  NormWeights weights;
  NormVariant variant;
  /// True: the weights are [D], shared by all heads of the model, and their gradient is partial on each tensor rank.
  /// False: the weights are this rank's slice with one element per column, [heads*D] or [heads, D].
  bool shared_weights = true;
  /// True: one norm over all heads of the part on all tensor ranks. False: one norm per head.
  bool across = false;
};

/// Heads [first, first + heads) of x, which are normalized if `norm` is set, else copied. All heads before `first` must
/// have the width of norm_heads' argument head_dim.
struct HeadPart {
  int64_t first = 0, heads = 0;
  std::optional<HeadNorm> norm;
  int64_t head_dim = 0;  ///< width of these heads; 0: norm_heads' argument head_dim
};

/// Normalizes or copies the parts of x [N, columns of this rank's heads] and returns them side by side. Several parts
/// may read the same heads. `ranks` (null on one rank) must outlive the tape. Norms with `across` sum their statistics
/// over `ranks`: forward with one all-reduce (layernorm: two), backward with one. If several ranks have the same heads,
/// each rank has a partial gradient. Such heads count once per rank, in the sums and in the number of columns by which
/// the sums are divided, so that the mean equals the mean over distinct heads.
Var norm_heads(const Ctx& ctx, const Var& x, int64_t head_dim, std::span<const HeadPart> parts, Reduction* ranks);

}  // namespace ashlar::ops
