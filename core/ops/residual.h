#pragma once

#include "core/autograd/tape.h"

namespace ashlar::ops {

/// A branch added to the residual stream, with its dropout and factor.
struct Branch {
  Var value;
  double dropout = 0;
  uint32_t rng_stream = 0;
  double scale = 1;  ///< equal for two branches added at once
};

/// x + scale * dropout(a) [+ scale * dropout(b)]. All branches are added to the stream here. Without x, the sum of the
/// branches only. A branch without dropout and factor shares its gradient with the stream instead of copying it.
Var residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b);

/// `residual` in two parts, for kernels that fuse more with the addition: begin_residual returns the kernel call,
/// record_residual records the node.
struct ResidualCall {
  ValueInfo info;
  Tensor y;
  ResidualForward args;
};
ResidualCall begin_residual(const Ctx& ctx, const Var* x, const Branch& a, const Branch* b);
Var record_residual(const Ctx& ctx, const ResidualCall& call, const Var* x, const Branch& a, const Branch* b);

}  // namespace ashlar::ops
