#pragma once

#include "core/backend/elementwise.h"
#include "core/backend/norm.h"

namespace ashlar {

/// Adds a branch to the residual stream and normalizes the sum in one pass, which reads the sum from the cache.
/// Rounding is the same as in two calls. There is no fused backward: NormBackward adds to the gradient of the stream
/// (dx_mode).
struct ResidualNormForward {
  ResidualForward residual;  ///< its y is the stream
  NormForward norm;          ///< its x is that y; of whole rows (heads = 1)

  auto views() const { return std::tie(residual, norm); }
};

}  // namespace ashlar
