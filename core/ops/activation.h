#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The kind of activation, and the options of a gated one (ActivationForward).
struct ActivationOptions {
  Activation kind = Activation::kSilu;
  double clamp = 0;  ///< 0 = none
  double linear_offset = 0;
  Weight* scalars = nullptr;  ///< [2], of xielu; outlives the tape
};

/// act(x) [N, F] of this rank's columns, or act(x) * up if `up` is given (x is then the gate). Selective recomputation
/// recomputes the output from x and up instead of storing it. Scalars are equal on every tensor rank; each rank has a
/// partial gradient from its columns.
Var activation(const Ctx& ctx, const Var& x, const Var* up, const ActivationOptions& options);

/// act(x w^T + bias): the result of `linear` and `activation`, by one forward kernel.
Var linear_activation(const Ctx& ctx, const Var& x, Weight& w, Weight* bias, Activation kind);

}  // namespace ashlar::ops
