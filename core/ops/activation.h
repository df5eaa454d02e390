#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The kind of activation, and the options of a gated activation (formulas at ActivationForward).
struct ActivationOptions {
  Activation kind = Activation::kSilu;
  double clamp = 0;  ///< 0 = no clamp
  double linear_offset = 0;
  Weight* scalars = nullptr;  ///< [2], learned scalars of xielu, else null; must outlive the tape
};

/// Returns act(x) [N, F] for this rank's columns or, if `up` is given, act(x) * up with x as the gate. Selective
/// recomputation recomputes the output from x and up instead of storing it. The scalars of xielu are equal on all
/// tensor ranks; each rank has a partial gradient of them, from its columns.
Var activation(const Ctx& ctx, const Var& x, const Var* up, const ActivationOptions& options);

/// Returns act(x w^T + bias), as `linear` followed by `activation`, with one fused forward kernel.
Var linear_activation(const Ctx& ctx, const Var& x, Weight& w, Weight* bias, Activation kind);

}  // namespace ashlar::ops
