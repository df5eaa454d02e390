#pragma once

#include "core/backend/elementwise.h"
#include "core/backend/norm.h"

namespace ashlar {

/// Adds a branch to the residual stream and normalizes the sum in one pass, so that the sum is read while cached.
/// Rounding is that of the two calls. Backward is that of the parts: NormBackward adds to the stream's gradient in its
/// own pass (dx_mode).
struct ResidualNormForward {
  ResidualForward residual;  ///< its y is the stream
  NormForward norm;          ///< its x is that y; of whole rows (heads = 1)

  auto views() const { return std::tie(residual, norm); }
};

}  // namespace ashlar
