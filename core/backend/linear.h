#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// y = x w^T + bias, summed in the accumulate dtype and rounded once when stored. x and w have the storage dtype. bias
/// has the storage dtype or the accumulate dtype. y has the storage dtype or, e.g. for logits, the accumulate dtype.
/// Rows of x, w and y may be strided. y must not alias any input.
struct LinearForward {
  ConstView x;     ///< [N, K] read
  ConstView w;     ///< [M, K] read
  ConstView bias;  ///< [M] read, or absent
  MutView y;       ///< [N, M] written

  auto views() const { return std::tie(x, w, bias, y); }
};

/// dx (+)= dy w, the gradient of a linear layer's input.
struct LinearBackwardInput {
  ConstView dy;  ///< [N, M] storage dtype, read
  ConstView w;   ///< [M, K] storage dtype, read
  MutView dx;    ///< [N, K] storage or accumulate dtype, written or accumulated (mode)
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, w, dx); }
};

/// dw (+)= dy^T x and dbias (+)= column sums of dy, both summed and stored in the accumulate dtype.
struct LinearBackwardWeight {
  ConstView dy;   ///< [N, M] storage dtype, read
  ConstView x;    ///< [N, K] storage dtype, read
  MutView dw;     ///< [M, K] accumulate dtype, or absent
  MutView dbias;  ///< [M] accumulate dtype, or absent
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, x, dw, dbias); }
};

}  // namespace ashlar
