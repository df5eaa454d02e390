#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"
#include "core/ops/residual.h"

namespace ashlar::ops {

/// Gain and bias of a norm; either may be null.
struct NormWeights {
  Weight* gamma = nullptr;
  Weight* beta = nullptr;
};

/// Returns the norm of each row of x [N, C] with gamma, beta [C] (formulas in core/backend/norm.h). With selective
/// recomputation, operations that use the output recompute it from x in backward instead of storing it.
Var norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// `norm` for an x that is equal on all tensor ranks. Each rank uses the output only for its slice of the next
/// operation, so the gradients of x and of the weights are partial on each rank.
Var replicated_norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// The residual stream x + scale * dropout(a) [+ scale * dropout(b)] and its norm, computed by one forward kernel.
/// Values and gradients equal the results of `residual` followed by `norm`.
struct Normed {
  Var stream, normed;
};
Normed residual_norm(const Ctx& ctx, const Var& x, const Branch& a, const Branch* b, const NormWeights& weights,
                     const NormVariant& variant);

}  // namespace ashlar::ops
