#pragma once

#include "core/device/stream.h"
#include "core/tensor/view.h"
#include "kernels/cuda/dev/kernel.h"

namespace ashlar::ASHLAR_DEV {

/// c (+)= sums + bias, rounded once. Completes a product that is left in the accumulate dtype because the library does
/// not support its bias.
struct GemmEpilogue {
  ConstView sums;  ///< [n, m] in the accumulate dtype of c's dtype; absent means zeros
  ConstView bias;  ///< [m], or absent; fp64 if c is fp64, otherwise bf16 or fp32
  MutView c;       ///< [n, m]
  bool accumulate = false;
};
/// Queues the operation on the stream.
void gemm_epilogue(const GemmEpilogue& args, Stream& stream);

/// Queues a comparison of a and b as arrays of 16-bit words. It adds the number of differing words to `count`. `bytes`
/// is even; all pointers are device memory.
void count_differences(const void* a, const void* b, int64_t bytes, uint32_t* count, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV
