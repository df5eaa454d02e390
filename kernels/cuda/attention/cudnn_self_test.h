#pragma once

#include <string>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::cudnn {

/// How far results may lie from our own kernels'. Both multiply probabilities and gradients of scores rounded to bf16
/// (a relative error of 2^-9 a term, which sums average) and round once to bf16: 2^-6 in the mean square leaves room,
/// while a wrong mask, scale, stride or head differs by about 1. Single elements may cancel: 2^-4 of the largest.
inline constexpr double kMeanTolerance = 1.0 / 64, kElementTolerance = 1.0 / 16;
/// Of lse, absolute: sums in fp32 of exact products of bf16.
inline constexpr double kLseTolerance = 1e-3;

/// Runs the plan, twice, and the kernels of `own` on the same random numbers, in rows as far apart as the case says,
/// and compares on the host. Empty where all is well; otherwise which result differs how: from our own, or from itself.
/// The host waits; memory is taken from the workspaces' and given back.
std::string self_test(Backend& own, AttentionPlan& plan, const AttentionCase& c, Stream& stream);
/// What it needs, beside the plan's workspace.
int64_t self_test_bytes(const AttentionCase& c);

}  // namespace ashlar::cudnn
