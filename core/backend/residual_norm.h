#pragma once

#include "core/backend/elementwise.h"
#include "core/backend/norm.h"

namespace ashlar {

/// A branch joins the residual stream, and the sum's norm, in one pass: the sum is read where it was made. Roundings
/// are those of the two calls. Backward is that of the parts: NormBackward adds to the stream's gradient in its own
/// pass (dx_mode).
struct ResidualNormForward {
  ResidualForward residual;  ///< its y is the stream
  NormForward norm;          ///< its x is that y; of whole rows (heads = 1)

  auto views() const { return std::tie(residual, norm); }
};

}  // namespace ashlar
