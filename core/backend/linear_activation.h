#pragma once

#include "core/backend/activation.h"
#include "core/backend/linear.h"

namespace ashlar {

/// The first linear layer of an ungated FFN with its activation, in one kernel. Pre-activation (linear.y) and
/// activation (y) are both stored. There is no fused backward: LinearBackwardInput, LinearBackwardWeight and
/// ActivationBackward, which reads the pre-activation, compute the gradients. A backend may compute the activation from
/// the pre-activation before or after it is rounded to the storage dtype. The CPU backend uses the rounded
/// pre-activation, so its results have the same bits as two separate calls.
struct LinearActivation {
  LinearForward linear;  ///< arguments of the linear layer; linear.y, the pre-activation, has the storage dtype
  MutView y;             ///< [N, M] storage dtype, written: act(linear.y); must not alias another view
  Activation kind = Activation::kGeluTanh;

  auto views() const { return std::tie(linear, y); }
};

}  // namespace ashlar
