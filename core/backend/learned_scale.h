#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// y = s * x with one learned scalar s for the whole matrix, rounded once when stored.
/// Source: `layer_scalar` of Gemma 4, which multiplies the output of a block.
struct LearnedScale {
  ConstView x;  ///< [N, C] storage dtype, read
  ConstView s;  ///< [1] storage dtype, read
  MutView y;    ///< [N, C] storage dtype, written; must not alias x

  auto views() const { return std::tie(x, s, y); }
};

/// Gradients of LearnedScale: dx (+)= s * dy; ds (+)= sum of dy * x over all elements. The order of the sum depends
/// only on the shape, so ds has the same bits for any thread count and on every GPU.
struct LearnedScaleBackward {
  ConstView dy;  ///< [N, C] storage dtype, read
  ConstView x;   ///< [N, C] storage dtype, read; input of the forward pass
  ConstView s;   ///< [1] storage dtype, read
  MutView dx;    ///< [N, C] storage dtype, written or accumulated (dx_mode); absent if kSkip; may alias dy if
                 ///< kOverwrite
  MutView ds;    ///< [1] accumulate dtype, written or accumulated (param_mode); absent if kSkip
  GradMode dx_mode = GradMode::kOverwrite;
  GradMode param_mode = GradMode::kAccumulate;

  auto views() const { return std::tie(dy, x, s, dx, ds); }
};

}  // namespace ashlar
