#pragma once

#include "core/backend/common.h"

namespace ashlar {

// Matrix products with one weight for each group of rows, e.g. for the experts of a layer. Row s belongs to group g if
// offsets[g] <= s < offsets[g + 1]. Groups may be empty. The weight of group g is rows [g * M, (g + 1) * M) of one
// matrix. Offsets are in device memory and are not known to the host: a backend that reads them on the device sizes its
// launch for all S rows. Sums and roundings are those of linear.h.

/// y[s] = x[s] w[g]^T + bias[g], for each row s of each group g. The rows from offsets[G] on are set to zero.
struct GroupedLinearForward {
  ConstView x;        ///< [S, K] storage dtype, read
  ConstView w;        ///< [G * M, K] storage dtype, contiguous, read
  ConstView bias{};   ///< [G * M] storage dtype, read, or absent
  ConstView offsets;  ///< [G + 1] kInt32, ascending from 0 to at most S
  MutView y;          ///< [S, M] storage dtype, written

  auto views() const { return std::tie(x, w, bias, offsets, y); }
};

/// dx[s] = dy[s] w[g], for each row s of each group g. The rows from offsets[G] on are set to zero.
struct GroupedLinearBackwardInput {
  ConstView dy;       ///< [S, M] storage dtype, read
  ConstView w;        ///< [G * M, K] storage dtype, contiguous, read
  ConstView offsets;  ///< [G + 1] kInt32
  MutView dx;         ///< [S, K] storage dtype, written

  auto views() const { return std::tie(dy, w, offsets, dx); }
};

/// dw[g] (+)= dy[rows of g]^T x[rows of g] and dbias[g] (+)= column sums of dy[rows of g]. For an empty group,
/// kOverwrite writes zero and kAccumulate changes nothing.
struct GroupedLinearBackwardWeight {
  ConstView dy;       ///< [S, M] storage dtype, read
  ConstView x;        ///< [S, K] storage dtype, read
  ConstView offsets;  ///< [G + 1] kInt32
  MutView dw{};       ///< [G * M, K] accumulate dtype, contiguous, or absent
  MutView dbias{};    ///< [G * M] accumulate dtype, or absent
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, x, offsets, dw, dbias); }
};

}  // namespace ashlar
