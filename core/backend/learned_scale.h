#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// y = s * x with one learned number s for the whole matrix. One rounding at the store.
/// Source: the factor on a block's output of Gemma 4 (`layer_scalar`).
struct LearnedScale {
  ConstView x;  ///< [N, C] storage dtype, read
  ConstView s;  ///< [1] storage dtype, read
  MutView y;    ///< [N, C] storage dtype, written; may not alias x

  auto views() const { return std::tie(x, s, y); }
};

/// Gradients of LearnedScale: dx (+)= s * dy; ds (+)= sum of dy * x over all elements, in an order that depends
/// only on the shape: the same bits for any thread count and on every GPU.
struct LearnedScaleBackward {
  ConstView dy;  ///< [N, C] storage dtype, read
  ConstView x;   ///< [N, C] storage dtype, input of the forward pass; read-only
  ConstView s;   ///< [1] storage dtype, read
  MutView dx;    ///< [N, C] storage dtype, by dx_mode; absent with kSkip; may alias dy when kOverwrite
  MutView ds;    ///< [1] accumulate dtype, by param_mode; absent with kSkip
  GradMode dx_mode = GradMode::kOverwrite;
  GradMode param_mode = GradMode::kAccumulate;

  auto views() const { return std::tie(dy, x, s, dx, ds); }
};

}  // namespace ashlar
