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

/// Row norm of x [N, C] with gamma, beta [C] (core/backend/norm.h has the formulas). With selective
/// recomputation the output is not kept by its consumers but made again from x.
Var norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// The same of a row that every tensor rank has for its slice of what follows: replicated in, replicated out, each rank
/// with a part of the gradients of row and weights.
Var replicated_norm(const Ctx& ctx, const Var& x, const NormWeights& weights, const NormVariant& variant);

/// The residual stream x + dropout(branch), and its norm: the same values and gradients as by `residual` and `norm`, by
/// one kernel forward.
struct Normed {
  Var stream, normed;
};
Normed residual_norm(const Ctx& ctx, const Var& x, const Branch& branch, const NormWeights& weights,
                     const NormVariant& variant);

}  // namespace ashlar::ops
