#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Row norm of x [N, C] with gamma, beta [C] or null (core/backend/norm.h has the formulas). With selective
/// recomputation the output is not kept by its consumers but made again from x.
Var norm(const Ctx& ctx, const Var& x, Weight* gamma, Weight* beta, const NormVariant& variant);

}  // namespace ashlar::ops
