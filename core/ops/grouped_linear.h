#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Returns y [S, M] with y[s] = x[s] w[g]^T + bias[g] for the rows s of group g (GroupedLinearForward), for x [S, K], w
/// [G * M, K], bias [G * M] or null, and offsets [G + 1]. Placements are those of `linear`. The weight gradient is
/// deferred as in `linear`. `w` and `bias` must outlive the tape.
Var grouped_linear(const Ctx& ctx, const Var& x, const Tensor& offsets, Weight& w, Weight* bias);

}  // namespace ashlar::ops
