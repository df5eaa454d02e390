#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// y = x w^T + bias. The product is summed in fp32 (fp64 for fp64) and rounded once at the store.
/// dtypes: x, w and bias share the storage dtype (bias may also be fp32); y is the storage dtype or the accumulate
/// dtype (logits). Rows of x, w, y may be strided. y may not alias anything.
struct LinearForward {
  ConstView x;     ///< [N, K] read
  ConstView w;     ///< [M, K] read
  ConstView bias;  ///< [M] read, or absent
  MutView y;       ///< [N, M] written

  auto views() const { return std::tie(x, w, bias, y); }
};

/// dx (+)= dy w.
struct LinearBackwardInput {
  ConstView dy;  ///< [N, M] storage dtype, read
  ConstView w;   ///< [M, K] storage dtype, read
  MutView dx;    ///< [N, K] storage dtype, written or accumulated by mode
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, w, dx); }
};

/// dw (+)= dy^T x and dbias (+)= column sums of dy. Always summed and kept in the accumulate dtype.
struct LinearBackwardWeight {
  ConstView dy;   ///< [N, M] storage dtype, read
  ConstView x;    ///< [N, K] storage dtype, read
  MutView dw;     ///< [M, K] accumulate dtype, or absent
  MutView dbias;  ///< [M] accumulate dtype, or absent
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, x, dw, dbias); }
};

}  // namespace ashlar
