#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// min(max(x, -limit), limit); the gradient passes where -limit <= x <= limit. x is stored for backward.
Var clamp(const Ctx& ctx, const Var& x, double limit);

}  // namespace ashlar::ops
