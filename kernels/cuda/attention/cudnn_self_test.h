#pragma once

#include <string>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_choice.h"

namespace ashlar::cudnn {

/// How far results may lie from our own kernels'. Both multiply probabilities and gradients of scores rounded to bf16
/// (a relative error of 2^-9 a term, which sums average) and round once to bf16: 2^-6 in the mean square leaves room,
/// while a wrong mask, scale, stride or head differs by about 1. Single elements may cancel: 2^-4 of the largest.
inline constexpr double kMeanTolerance = 1.0 / 64, kElementTolerance = 1.0 / 16;
/// Of lse, absolute: sums in fp32 of exact products of bf16.
inline constexpr double kLseTolerance = 1e-3;

/// Runs the plans, twice, and the kernels of `own` on the same random rows of q, k and v side by side, and compares on
/// the host. `shape` is that of the plans: B, T, H, G, D and scale. Empty where all is well; otherwise which result
/// differs how: from our own, or from itself. The host waits; memory is taken from the workspace and given back.
std::string self_test(Backend& own, PreparedAttention& cudnn, const AttentionCase& shape, Stream& stream);

}  // namespace ashlar::cudnn
