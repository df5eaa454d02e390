#pragma once

#include "core/backend/common.h"
#include "core/device/stream.h"
#include "core/tuning/tuner.h"
#include "kernels/cuda/host/device.h"

/// Matrix products of the device. On a GPU cublasLt computes them; on an emulated device a queued job computes them on
/// the host.
namespace ashlar::ASHLAR_DEV {

/// A matrix product c (+)= op(a) op(b) [+ bias]. It is summed in the accumulate dtype of a and rounded once at the
/// store. fp32 is computed in fp32 (never TF32), fp64 in fp64. a and b have the same storage dtype; c and the bias each
/// have that dtype or the accumulate dtype.
///
/// Matrices are row-major with row strides. cublasLt is column-major, so it is called with a and b exchanged and with
/// strides as leading dimensions. Its fast algorithms need pointers aligned to 16 bytes and strides that are multiples
/// of 16 bytes; other operands get slower generic algorithms. A bias that the library's epilogue does not support (in
/// fp64, or of another dtype than c) is added by our own kernel after the product (gemm_epilogue.h).
///
/// Two epilogues of the library are not used. No contract needs DGELU, a gradient times the derivative of gelu. BGRADB
/// rounds column sums to the storage dtype, but bias gradients are in the accumulate dtype.
struct Gemm {
  ConstView a;     ///< [n, k], or [k, n] with transpose_a
  ConstView b;     ///< [k, m], or [m, k] with transpose_b
  ConstView bias;  ///< [m], added to each row, or absent
  MutView c;       ///< [n, m]
  /// [n, m] of c's dtype, or absent. Receives the rounded pre-activation; c is then gelu_tanh of the unrounded
  /// pre-activation. Allowed only if fuses_gelu returns true.
  MutView pre;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  ///< adds to c (beta = 1)
};

/// Number of rows and columns of the largest square product that Backend::measure_peak times.
#if defined(ASHLAR_ON_CUDA)
inline constexpr int64_t kPeakExtent = 8192;
#else
inline constexpr int64_t kPeakExtent = 256;
#endif

/// Queues a product on the stream. Throws a Bug for mismatching shapes.
void gemm(Device& device, const Gemm& args, Stream& stream);

/// True if gemm() supports args.pre. For a pre-activation cublasLt needs fp32 arithmetic, an address of `pre` divisible
/// by 16, a stride of `pre` divisible by 8 elements, and a bias of c's dtype.
bool fuses_gelu(Device& device, const Gemm& args);

/// Throws a Bug for mismatching shapes or dtypes.
inline void check_gemm(const Gemm& g) {
  const int64_t k = g.transpose_a ? g.a.rows : g.a.cols;
  const DType storage = g.a.dtype;
  ASHLAR_CHECK(g.c.rows == (g.transpose_a ? g.a.cols : g.a.rows) && g.c.cols == (g.transpose_b ? g.b.rows : g.b.cols) &&
                   k == (g.transpose_b ? g.b.cols : g.b.rows),
               "[gemm] expected matching shapes, got a [", g.a.rows, ", ", g.a.cols, "], b [", g.b.rows, ", ", g.b.cols,
               "], c [", g.c.rows, ", ", g.c.cols, "]");
  ASHLAR_CHECK(g.b.dtype == storage && (g.c.dtype == storage || g.c.dtype == accumulate_dtype(storage)),
               "[gemm] expected a and b of one dtype and c of this or the accumulate dtype, got a ", name_of(storage),
               ", b ", name_of(g.b.dtype), ", c ", name_of(g.c.dtype));
  ASHLAR_CHECK(!g.pre || (!g.accumulate && g.pre.dtype == g.c.dtype),
               "[gemm] expected a pre-activation of the dtype of c, and no accumulation");
}

/// Returns the tuner that selects algorithms for products, or null if the device has none. On a GPU the call loads
/// cublasLt and throws if the library is missing.
Tuner* gemm_tuner(Device& device);

}  // namespace ashlar::ASHLAR_DEV
