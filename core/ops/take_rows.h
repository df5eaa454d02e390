#pragma once

#include <cstdint>
#include <span>

#include "core/autograd/ctx.h"

namespace ashlar::ops {

/// Returns the rows of x [N, C] with the given numbers, which may repeat: [rows.size(), C]. Consecutive numbers are
/// copied together. Not differentiable.
Tensor take_rows(const Ctx& ctx, const Tensor& x, std::span<const int64_t> rows);

}  // namespace ashlar::ops
