#pragma once

#include "core/device/stream.h"
#include "core/tensor/view.h"
#include "kernels/cuda/dev/kernel.h"

namespace ashlar::ASHLAR_DEV {

/// c (+)= sums + bias, rounded once: completes a product that the library leaves in the accumulate dtype, because it
/// does not support a bias of that dtype. Queued.
struct GemmEpilogue {
  ConstView sums;  ///< [n, m] accumulate dtype of c's storage, or absent: zeros
  ConstView bias;  ///< [m], any dtype of c's family, or absent
  MutView c;       ///< [n, m]
  bool accumulate = false;
};
void gemm_epilogue(const GemmEpilogue& args, Stream& stream);

/// Adds the number of differing byte pairs to `count`; `bytes` is even. Queued; all are device memory.
void count_differences(const void* a, const void* b, int64_t bytes, uint32_t* count, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV
