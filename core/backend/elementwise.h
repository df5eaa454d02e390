#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Addition to the residual stream: y = x + scale * dropout(delta) [+ scale * dropout2(delta2)], with one rounding.
/// Without x, y is the sum of the branches only. Row n, column c of delta has the dropout index of common.h with width
/// = cols. delta2 has its own random stream.
struct ResidualForward {
  ConstView x;       ///< [N, C] storage dtype, or absent
  ConstView delta;   ///< [N, C] storage dtype
  ConstView delta2;  ///< [N, C] storage dtype, or absent (the second branch of a parallel block)
  MutView y;         ///< [N, C] storage dtype, written; may be x
  DropoutArgs dropout;
  DropoutArgs dropout2;
  double scale = 1;  ///< factor of both branches

  auto views() const { return std::tie(x, delta, delta2, y, dropout, dropout2); }
};

/// ddelta (+)= scale * dy * mask/(1-p).
struct DropoutBackward {
  ConstView dy;
  MutView ddelta;
  DropoutArgs dropout;
  double scale = 1;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, ddelta, dropout); }
};

/// y = min(max(x, -limit), limit); NaN stays.
struct Clamp {
  ConstView x;       ///< [N, C] storage dtype, read
  MutView y;         ///< [N, C] storage dtype, written
  double limit = 0;  ///< above 0

  auto views() const { return std::tie(x, y); }
};

/// dx (+)= dy where -limit <= x <= limit, 0 elsewhere.
struct ClampBackward {
  ConstView dy, x;  ///< [N, C] storage dtype, read; x is the input of the forward pass
  MutView dx;       ///< [N, C] storage dtype, by mode
  double limit = 0;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, x, dx); }
};

/// dst (+)= src, converted: one rounding. Shapes equal; rows of both may be strided.
struct Copy {
  ConstView src;
  MutView dst;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(src, dst); }
};

/// dst = value.
struct Fill {
  MutView dst;
  double value = 0;

  auto views() const { return std::tie(dst); }
};

/// Random weights as a function of (seed, rng_stream, global element index) only: scale times a normal number (mean 0,
/// std 1: Philox::normal_at). With trunc_sigma > 0 the number is drawn again until it lies within [-trunc_sigma,
/// trunc_sigma] (Philox::truncated_normal_at). `scale` is the deviation before truncation, as in torch's trunc_normal_.
/// The local matrix is rows [row_begin, ..) and columns [col_begin, ..) of a global tensor of width global_cols.
struct RandomFill {
  static constexpr double kLeastTruncSigma = 0.5;

  MutView dst;
  double scale = 1;
  double trunc_sigma =
      0;  ///< truncation in deviations; 0: none; else at least kLeastTruncSigma, to bound the number of draws
  uint64_t seed = 0;
  uint64_t rng_stream = 0;
  int64_t row_begin = 0, col_begin = 0, global_cols = 0;

  auto views() const { return std::tie(dst); }
};

}  // namespace ashlar
