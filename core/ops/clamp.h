#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// Returns min(max(x, -limit), limit), elementwise. The gradient of x is dy where -limit <= x <= limit, else 0. x is
/// stored for backward.
Var clamp(const Ctx& ctx, const Var& x, double limit);

}  // namespace ashlar::ops
