#pragma once

#include "core/autograd/tape.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// y = x w^T + bias: x [N, K], w [M, K], bias [M] or null -> y [N, M]. The weight gradient is deferred when backward
/// runs over inputs only. `w` and `bias` must outlive the tape.
Var linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias);

/// The same in two parts, for kernels that do more with the product: the call to make, then the node.
struct LinearCall {
  Made made;
  Tensor y;
  LinearForward args;
};
LinearCall begin_linear(const Ctx& ctx, const Var& x, const Weight& w, const Weight* bias);
Var record_linear(const Ctx& ctx, const LinearCall& call, const Var& x, Weight& w, Weight* bias);

/// The same with the whole matrix on every tensor rank, x [N, K] as it is: rows in, rows out. Partial sums take no
/// bias.
Var whole_linear(const Ctx& ctx, const Var& x, Weight& w, Weight* bias = nullptr);

/// The same product without a gradient and with a result in the accumulate dtype: logits for evaluation and generation.
Tensor logits(const Ctx& ctx, const Tensor& x, const Tensor& w, const Weight* bias);

/// dw (+)= dy^T x, dbias (+)= column sums of dy, each by the weight's own mode.
void accumulate_weight_grad(const Ctx& ctx, const Tensor& x, const Tensor& dy, Weight& w, Weight* bias);

}  // namespace ashlar::ops
