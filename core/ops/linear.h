#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// y = x w^T + bias: x [N, K], w [M, K], bias [M] or null -> y [N, M]. The weight gradient is deferred when backward
/// computes input gradients only. `w` and `bias` must outlive the tape.
Var linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias);

/// `linear` in two parts, for kernels that fuse more with the product: begin_linear returns the kernel call,
/// record_linear records the node.
struct LinearCall {
  ValueInfo info;
  Tensor y;
  LinearForward args;
};
LinearCall begin_linear(const Ctx& ctx, const Var& x, const Weight& w, const Weight* bias);
Var record_linear(const Ctx& ctx, const LinearCall& call, const Var& x, Weight& w, Weight* bias);

/// `linear` for a matrix that every tensor rank holds completely. Accepts any placement of x [N, K]; the output has the
/// rows of x. If x is a partial sum, there must be no bias.
Var whole_linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias = nullptr);

/// The product of `linear` without a gradient and with a result in the accumulate dtype, for the logits of evaluation
/// and generation.
Tensor logits(const Ctx& ctx, const Tensor& x, const Tensor& w, const Weight* bias);

/// dw (+)= dy^T x, dbias (+)= column sums of dy, each with the weight's mode.
void accumulate_weight_grad(const Ctx& ctx, const Tensor& x, const Tensor& dy, Weight& w, Weight* bias);

}  // namespace ashlar::ops
