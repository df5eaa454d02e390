#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Which activation, and what a gated one does to its halves (ActivationForward).
struct ActivationOptions {
  Activation kind = Activation::kSilu;
  double clamp = 0;  ///< 0 = none
  double linear_offset = 0;
  Weight* scalars = nullptr;  ///< [2], of xielu; outlives the tape
};

/// act(x) [N, F] of this rank's columns, or act(x) * up when `up` is given (x is then the gate). Selective
/// recomputation makes the output again from x and up instead of keeping it. Scalars are the same on every tensor rank,
/// each of which has its columns' part of their gradient.
Var activation(const Ctx& ctx, const Var& x, const Var* up, const ActivationOptions& options);

/// act(x w^T + bias): what `linear` and `activation` give one after the other, by one kernel forward.
Var linear_activation(const Ctx& ctx, const Var& x, Weight& w, Weight* bias, Activation kind);

}  // namespace ashlar::ops
