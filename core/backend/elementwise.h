#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Adds one or two branches, delta and delta2, to the residual stream x: y = x + scale * dropout(delta) [+ scale *
/// dropout2(delta2)], with one rounding. Without x, y is the sum of the branches only. The dropout mask of element (n,
/// c) follows from the formula for activations in DropoutArgs, with width = C. dropout2 has another random stream than
/// dropout.
struct ResidualForward {
  ConstView x;       ///< [N, C] storage dtype, or absent
  ConstView delta;   ///< [N, C] storage dtype
  ConstView delta2;  ///< [N, C] storage dtype, or absent (the second branch of a parallel block)
  MutView y;         ///< [N, C] storage dtype, written; may alias x
  DropoutArgs dropout;
  DropoutArgs dropout2;
  double scale = 1;  ///< factor of both branches

  auto views() const { return std::tie(x, delta, delta2, y, dropout, dropout2); }
};

/// ddelta (+)= scale * dy * mask / (1-p), where mask is 1 for elements that dropout keeps, else 0.
struct DropoutBackward {
  ConstView dy;
  MutView ddelta;
  DropoutArgs dropout;
  double scale = 1;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, ddelta, dropout); }
};

/// y = min(max(x, -limit), limit), elementwise; NaN stays NaN.
struct Clamp {
  ConstView x;       ///< [N, C] storage dtype, read
  MutView y;         ///< [N, C] storage dtype, written
  double limit = 0;  ///< greater than 0

  auto views() const { return std::tie(x, y); }
};

/// dx (+)= dy where -limit <= x <= limit, 0 elsewhere.
struct ClampBackward {
  ConstView dy, x;  ///< [N, C] storage dtype, read; x is the input of the forward pass
  MutView dx;       ///< [N, C] storage dtype, written or accumulated (mode)
  double limit = 0;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, x, dx); }
};

/// dst (+)= src, converted to the dtype of dst with one rounding. src and dst have the same shape; their rows may be
/// strided.
struct Copy {
  ConstView src;
  MutView dst;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(src, dst); }
};

/// Sets every element of dst to `value`.
struct Fill {
  MutView dst;
  double value = 0;

  auto views() const { return std::tie(dst); }
};

/// Fills dst with random weights that depend only on (seed, rng_stream, global element index): scale times a standard
/// normal number (Philox::normal_at). If trunc_sigma > 0, a number outside [-trunc_sigma, trunc_sigma] is drawn again
/// (Philox::truncated_normal_at). `scale` is the standard deviation before truncation, as in torch's trunc_normal_. dst
/// is a part of a global tensor with global_cols columns. The part begins at row row_begin and column col_begin.
struct RandomFill {
  static constexpr double kLeastTruncSigma = 0.5;

  MutView dst;
  double scale = 1;
  /// Truncation bound in standard deviations; 0: no truncation. Otherwise at least kLeastTruncSigma, which limits the
  /// number of draws.
  double trunc_sigma = 0;
  uint64_t seed = 0;
  uint64_t rng_stream = 0;
  int64_t row_begin = 0, col_begin = 0, global_cols = 0;

  auto views() const { return std::tie(dst); }
};

}  // namespace ashlar
