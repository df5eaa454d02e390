#pragma once

#include "core/backend/activation.h"
#include "core/backend/linear.h"

namespace ashlar {

/// The first half of an ungated FFN: a product, its bias and the activation in one pass over the result. Both outputs
/// are stored. Backward is LinearBackward* and ActivationBackward, which reads the pre-activation. The activation may
/// be computed from the pre-activation before or after its rounding to storage (on the CPU after, with the same bits as
/// two calls).
struct LinearActivation {
  LinearForward linear;  ///< its y is the pre-activation, storage dtype
  MutView y;             ///< [N, M] storage dtype, written: act(linear.y); may not alias anything
  Activation kind = Activation::kGeluTanh;

  auto views() const { return std::tie(linear, y); }
};

}  // namespace ashlar
