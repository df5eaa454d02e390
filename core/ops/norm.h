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

/// Row norm of x [N, C] with gamma, beta [C] (core/backend/norm.h has the formulas). With selective recomputation its
/// consumers recompute the output from x instead of storing it.
Var norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// `norm` of a row that every tensor rank uses for its slice of the following operations: input and output are equal on
/// all ranks; the gradients of row and weights are partial on each.
Var replicated_norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// The residual stream x + dropout(branch) and its norm: the same values and gradients as `residual` and `norm`, by one
/// forward kernel.
struct Normed {
  Var stream, normed;
};
Normed residual_norm(const Ctx& ctx, const Var& x, const Branch& branch, const NormWeights& weights,
                     const NormVariant& variant);

}  // namespace ashlar::ops
