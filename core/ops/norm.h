#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"
#include "core/ops/residual.h"

namespace ashlar::ops {

/// Gain and bias of a norm, either may be null.
struct NormWeights {
  Weight* gamma = nullptr;
  Weight* beta = nullptr;
};

/// Row norm of x [N, C] with gamma, beta [C] (core/backend/norm.h has the formulas). With selective recomputation,
/// operations that use the output recompute it from x instead of storing it.
Var norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// `norm` of rows that every tensor rank has and uses for its slice of the following operations. Input and output are
/// equal on all ranks; the gradients of rows and weights are partial on each.
Var replicated_norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// The residual stream x + dropout(branch) and its norm, by one forward kernel. Values and gradients are those of
/// `residual` and `norm`.
struct Normed {
  Var stream, normed;
};
Normed residual_norm(const Ctx& ctx, const Var& x, const Branch& branch, const NormWeights& weights,
                     const NormVariant& variant);

}  // namespace ashlar::ops
