#pragma once

#include <string>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_attention.h"

namespace ashlar::cudnn {

/// Allowed differences from the results of our own kernels. cuDNN and our kernels both round probabilities and
/// gradients of scores to bf16 before they multiply them (a relative error of 2^-9 per term, which averages out in
/// sums), and round the result once to bf16. So a relative root mean square error of 2^-6 is ample, while a wrong mask,
/// scale, stride or head gives an error of about 1. Single elements may suffer from cancellation, so they may differ by
/// 2^-4 of the largest element.
inline constexpr double kMeanTolerance = 1.0 / 64, kElementTolerance = 1.0 / 16;
/// Allowed absolute difference of lse. cuDNN and our own kernels both compute lse in fp32, from scores that are fp32
/// sums of exact products.
inline constexpr double kLseTolerance = 1e-3;

/// Runs the plan twice and the kernels of `own` once, on the same random numbers with the row strides of the case, and
/// compares the results on the host. Returns an empty string if they agree; otherwise which result differs, and whether
/// it differs from our own kernels or between the two runs, or why the test does not support the case. Blocks the host.
/// Allocates memory of kind kWorkspace and releases it at the end.
std::string self_test(Backend& own, AttentionPlan& plan, const AttentionCase& c, Stream& stream);
/// Bytes of memory that self_test needs in addition to the plan's workspace.
int64_t self_test_bytes(const AttentionCase& c);

}  // namespace ashlar::cudnn
