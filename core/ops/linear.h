#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// Returns y [N, M] = x w^T + bias for x [N, K], w [M, K] and bias [M] or null. If backward computes input gradients
/// only (Tape::backward with `deferred`), the weight gradient is deferred. `w` and `bias` must outlive the tape.
Var linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias);

/// `linear` in two parts, for operations that fuse the product with another kernel: begin_linear returns the arguments
/// of the kernel call, record_linear records the node.
struct LinearCall {
  ValueInfo info;
  Tensor y;
  LinearForward args;
};
LinearCall begin_linear(const Ctx& ctx, const Var& x, const Weight& w, const Weight* bias);
Var record_linear(const Ctx& ctx, const LinearCall& call, const Var& x, Weight& w, Weight* bias);

/// `linear` for a weight that is replicated over the tensor ranks. x [N, K] must be invariant, split by rows, or a
/// partial sum; the output has the same placement. If x is a partial sum, there must be no bias.
Var whole_linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias = nullptr);

/// Returns x w^T + bias in the accumulate dtype, without a gradient: the logits of evaluation and generation.
Tensor logits(const Ctx& ctx, const Tensor& x, const Tensor& w, const Weight* bias);

/// dw (+)= dy^T x and dbias (+)= column sums of dy, each with the GradMode of its own weight (Weight::next_mode).
void accumulate_weight_grad(const Ctx& ctx, const Tensor& x, const Tensor& dy, Weight& w, Weight* bias);

}  // namespace ashlar::ops
