#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// A branch that is added to the residual stream, with its drop probability and factor.
struct Branch {
  Var value;
  double dropout = 0;
  uint32_t rng_stream = 0;
  double scale = 1;  ///< factor; must be equal for two branches that are added together
};

/// Returns the residual stream x + scale * dropout(a) [+ scale * dropout(b)] or, if x is null, only the sum of the
/// branches. The gradient of a branch without dropout and with scale 1 shares memory with the gradient of the result.
Var residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b);

/// `residual` in two parts, for operations that fuse the addition with another kernel: begin_residual returns the
/// arguments of the kernel call, record_residual records the node.
struct ResidualCall {
  ValueInfo info;
  Tensor y;
  ResidualForward args;
};
ResidualCall begin_residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b);
Var record_residual(const Ctx& ctx, const ResidualCall& call, const Var* x, const Branch& a, const Branch* b);

}  // namespace ashlar::ops
