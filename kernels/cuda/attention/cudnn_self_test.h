#pragma once

#include <string>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::cudnn {

/// Allowed differences from the results of our own kernels. Both round probabilities and gradients of scores to bf16
/// before they multiply them (a relative error of 2^-9 per term, which averages out in sums), and round the result once
/// to bf16. So a mean square of 2^-6 is ample, while a wrong mask, scale, stride or head gives a difference of about 1.
/// Single elements may suffer from cancellation, so 2^-4 of the largest element is allowed for them.
inline constexpr double kMeanTolerance = 1.0 / 64, kElementTolerance = 1.0 / 16;
/// Allowed absolute difference of lse, which is an fp32 sum of exact products of bf16.
inline constexpr double kLseTolerance = 1e-3;

/// Runs the plan twice, and the kernels of `own` once, on the same random numbers with the row strides of the case, and
/// compares the results on the host. Returns an empty string if they agree; otherwise which result differs, and whether
/// from our own kernels or between the two runs. The host waits; memory comes from the workspaces and is returned to
/// them.
std::string self_test(Backend& own, AttentionPlan& plan, const AttentionCase& c, Stream& stream);
/// Bytes of memory that self_test needs in addition to the plan's workspace.
int64_t self_test_bytes(const AttentionCase& c);

}  // namespace ashlar::cudnn
