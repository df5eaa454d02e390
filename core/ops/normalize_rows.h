#pragma once

#include "core/autograd/ctx.h"
#include "core/autograd/weight.h"

namespace ashlar::ops {

/// The rows of a matrix [V, C] with length one, and 1 / length of each [V]. No node: whoever multiplies by them hands
/// their gradient back.
struct NormalizedRows {
  Tensor rows;
  Tensor inverse;
};
NormalizedRows normalized_rows(const Ctx& ctx, const Weight& w);

/// w's gradient (+)= that of its rows, from dy [V, C] in the accumulate dtype, the gradient of the rows with length
/// one.
void normalized_rows_backward(const Ctx& ctx, const NormalizedRows& normal, const Tensor& dy, Weight& w);

}  // namespace ashlar::ops
