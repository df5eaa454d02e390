#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// s * x, s one learned number [1]. x is kept for backward.
Var learned_scale(const Ctx& ctx, const Var& x, Weight& s);

}  // namespace ashlar::ops
