#pragma once

#include "core/autograd/ctx.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The rows of a matrix [V, C], normalized to length one, and 1 / length of each row [V]. This is not a node on the
/// tape: the caller must pass the gradient to normalized_rows_backward.
struct NormalizedRows {
  Tensor rows;
  Tensor inverse;
};
NormalizedRows normalized_rows(const Ctx& ctx, const Weight& w);

/// Accumulates w's gradient from dy [V, C] in the accumulate dtype, the gradient of the normalized rows.
void normalized_rows_backward(const Ctx& ctx, const NormalizedRows& normal, const Tensor& dy, Weight& w);

}  // namespace ashlar::ops
