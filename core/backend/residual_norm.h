#pragma once

#include "core/backend/elementwise.h"
#include "core/backend/norm.h"

namespace ashlar {

/// Adds a branch to the residual stream and normalizes the sum in one kernel, so that the sum need not be read from
/// memory again. The sum is rounded as in two separate calls. There is no fused backward: NormBackward with dx_mode =
/// kAccumulate adds the gradient of the norm's input to the gradient of the residual stream.
struct ResidualNormForward {
  ResidualForward residual;  ///< residual.y is the new residual stream
  NormForward norm;          ///< norm.x must be residual.y, and norm.heads must be 1

  auto views() const { return std::tie(residual, norm); }
};

}  // namespace ashlar
