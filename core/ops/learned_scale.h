#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Returns s * x with a learned scalar s [1]. x is stored for backward.
Var learned_scale(const Ctx& ctx, const Var& x, Weight& s);

}  // namespace ashlar::ops
