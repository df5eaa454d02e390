#pragma once

#include "core/backend/common.h"
#include "core/device/stream.h"
#include "core/tuning/tuner.h"
#include "kernels/cuda/host/device.h"

/// Matrix products of the device: by cublasLt; on an emulated device by host arithmetic in a queued job.
namespace ashlar::ASHLAR_DEV {

/// c (+)= op(a) op(b) [+ bias], summed in the accumulate dtype of a, rounded once at the store.
/// a and b share a storage dtype; c has it or the accumulate dtype; the bias has c's dtype or the accumulate dtype.
/// Row-major with row strides, so cublasLt is called with the operands exchanged and leading dimension = stride. Its
/// fast algorithms need 16-byte aligned pointers and strides that are multiples of 16 bytes; others use its generic
/// ones. fp32 is computed in fp32 (never TF32), fp64 in fp64. `pre` is the AUX output of an epilogue with an
/// activation; only if fuses_gelu returns true. A bias that the library's epilogue does not support (of another dtype
/// than c, or in fp64) is added by our own pass over the sums. No contract needs the product of a gradient with the
/// derivative of gelu (DGELU), or column sums in fp32 (BGRADB rounds them to storage except in fp32): neither is used.
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

/// Size of a square product that reaches the device's rate (Backend::measure_peak).
#if defined(ASHLAR_ON_CUDA)
inline constexpr int64_t kPeakExtent = 8192;
#else
inline constexpr int64_t kPeakExtent = 256;
#endif

/// Queued. Throws a Bug for mismatching shapes.
void gemm(Device& device, const Gemm& args, Stream& stream);

/// True if `gemm` supports `pre`: cublasLt needs fp32 arithmetic, a pre-activation at an address divisible by 16 with a
/// stride divisible by 8, and a bias of c's dtype.
bool fuses_gelu(Device& device, const Gemm& args);

/// Throws a Bug for mismatching shapes or dtypes.
inline void check_gemm(const Gemm& g) {
  const int64_t k = g.transpose_a ? g.a.rows : g.a.cols;
  const DType storage = g.a.dtype;
  ASHLAR_CHECK(g.c.rows == (g.transpose_a ? g.a.cols : g.a.rows) && g.c.cols == (g.transpose_b ? g.b.rows : g.b.cols) &&
                   k == (g.transpose_b ? g.b.cols : g.b.rows),
               "[gemm] a [", g.a.rows, ", ", g.a.cols, "], b [", g.b.rows, ", ", g.b.cols, "], c [", g.c.rows, ", ",
               g.c.cols, "]");
  ASHLAR_CHECK(g.b.dtype == storage && (g.c.dtype == storage || g.c.dtype == accumulate_dtype(storage)),
               "[gemm] a holds ", name_of(storage), ", b ", name_of(g.b.dtype), ", c ", name_of(g.c.dtype));
  ASHLAR_CHECK(!g.pre || (!g.accumulate && g.pre.dtype == g.c.dtype),
               "[gemm] expected no accumulation with an activation");
}

/// The tuner of algorithms for products; null if there is none. On a GPU it loads the library: throws if it is missing.
Tuner* gemm_tuner(Device& device);

}  // namespace ashlar::ASHLAR_DEV
