#pragma once

#include "core/backend/common.h"
#include "core/device/stream.h"
#include "kernels/cuda/dev/host.h"

/// Matrix products of the device: cublasLt's place under nvcc, host arithmetic in a queued job when emulated.
namespace ashlar::ASHLAR_DEV {

/// c (+)= op(a) op(b) [+ bias], summed in the accumulate dtype of a, rounded once at the store.
/// What cublasLt will ask for, and this layer checks the same way in both builds: a and b share a storage dtype; c has
/// it or the accumulate dtype; the bias has c's dtype or the accumulate dtype. Row-major with row strides, so cublasLt
/// is called with the operands exchanged and leading dimension = stride. Its fast algorithms want 16-byte aligned
/// pointers and strides that are multiples of 16 bytes; others are served by its generic ones, never refused.
/// fp32 is computed in fp32 (never TF32), fp64 in fp64. `pre` is the AUX output of an epilogue with an activation.
struct Gemm {
  ConstView a;     ///< [n, k], or [k, n] with transpose_a
  ConstView b;     ///< [k, m], or [m, k] with transpose_b
  ConstView bias;  ///< [m], added to each row, or absent
  MutView c;       ///< [n, m]
  MutView pre;     ///< [n, m] c's dtype: the pre-activation, rounded; with it c = gelu_tanh of it, unrounded. Or absent
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< adds to c (beta = 1)
};

/// The extent of a square product that shows the device's rate (Backend::measure_peak).
#if defined(__CUDACC__)
inline constexpr int64_t kPeakExtent = 8192;
#else
inline constexpr int64_t kPeakExtent = 256;
#endif

/// Queued. Throws a Bug where the shapes do not fit.
void gemm(Device& device, const Gemm& args, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV
