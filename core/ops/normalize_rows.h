#pragma once

#include "core/autograd/ctx.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The rows of a matrix [V, C], normalized to length one, and 1 / length of each row [V]. No node is recorded on the
/// tape: the caller must pass the gradient of `rows` to normalized_rows_backward.
struct NormalizedRows {
  Tensor rows;
  Tensor inverse;
};
NormalizedRows normalized_rows(const Ctx& ctx, const Weight& w);

/// Adds to the gradient of w. dy [V, C] is the gradient of the normalized rows, in the accumulate dtype.
void normalized_rows_backward(const Ctx& ctx, const NormalizedRows& normal, const Tensor& dy, Weight& w);

}  // namespace ashlar::ops
