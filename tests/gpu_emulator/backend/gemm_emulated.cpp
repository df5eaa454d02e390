// The place of cublasLt in the emulated device: blocked loops of the host, each element summed in ascending k whatever
// the other extents are.

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kernels/cuda/gemm/gemm.h"
#include "tests/gpu_emulator/backend/emulated_state.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int64_t kRows = 4, kCols = 8;  // of a tile, whose sums fit the sixteen registers of SSE2

template <typename F>
void with_dtype(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32: return f(float{});
    case DType::kBFloat16: return f(BF16{});
    case DType::kFloat64: return f(double{});
    default: throw Bug(str_cat("[gemm] a view holds ", name_of(dtype)));
  }
}

template <typename A>
A element(const ConstView& v, int64_t r, int64_t c) {
  const int64_t i = r * v.stride + c;
  switch (v.dtype) {
    case DType::kFloat32: return static_cast<A>(static_cast<const float*>(v.data)[i]);
    case DType::kBFloat16: return static_cast<A>(static_cast<float>(static_cast<const BF16*>(v.data)[i]));
    default: return static_cast<A>(static_cast<const double*>(v.data)[i]);
  }
}

template <typename A>
void store(const MutView& v, int64_t r, int64_t c, A value) {
  const int64_t i = r * v.stride + c;
  switch (v.dtype) {
    case DType::kFloat32: static_cast<float*>(v.data)[i] = static_cast<float>(value); break;
    case DType::kBFloat16: static_cast<BF16*>(v.data)[i] = BF16(static_cast<float>(value)); break;
    default: static_cast<double*>(v.data)[i] = static_cast<double>(value); break;
  }
}

template <typename A>
A gelu_tanh(A x) {
  constexpr A kRootTwoOverPi = static_cast<A>(0.79788456080286535588);
  return x / 2 * (1 + std::tanh(kRootTwoOverPi * (x + static_cast<A>(0.044715) * x * x * x)));
}

/// packed[k][width]: columns [begin, begin + width) of op(v), or rows of it where `rows`; zero beyond `extent`.
template <typename A, typename T>
void pack(const ConstView& v, bool along_rows, int64_t begin, int64_t width, int64_t extent, int64_t k, A* packed) {
  const auto* const data = static_cast<const T*>(v.data);
  const int64_t filled = std::min(width, extent - begin);
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < width; ++i) {
      A value = 0;
      if (i < filled) {
        const T& stored = along_rows ? data[(begin + i) * v.stride + p] : data[p * v.stride + begin + i];
        if constexpr (std::is_same_v<T, BF16>) {
          value = static_cast<float>(stored);
        } else {
          value = stored;
        }
      }
      packed[p * width + i] = value;
    }
  }
}

template <typename A>
void tile(const A* a, const A* b, int64_t k, A (&sums)[kRows][kCols]) {
  A local[kRows][kCols] = {};
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kCols; ++j) local[i][j] += a[p * kRows + i] * b[p * kCols + j];
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kCols; ++j) sums[i][j] = local[i][j];
}

template <typename A>
void finish(const Gemm& g, int64_t row, int64_t col, const A (&sums)[kRows][kCols]) {
  for (int64_t i = 0; i < std::min(kRows, g.c.rows - row); ++i) {
    for (int64_t j = 0; j < std::min(kCols, g.c.cols - col); ++j) {
      const int64_t r = row + i, c = col + j;
      A value = sums[i][j];
      if (g.bias) value += element<A>(g.bias, 0, c);
      if (g.accumulate) value += element<A>(g.c, r, c);
      if (g.pre) {
        store(g.pre, r, c, value);
        value = gelu_tanh(value);
      }
      store(g.c, r, c, value);
    }
  }
}

template <typename T>
void multiply(const Gemm& g, int64_t k) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const int64_t n = g.c.rows, m = g.c.cols;
  const int64_t row_tiles = (n + kRows - 1) / kRows;
  std::vector<A> a(static_cast<size_t>(row_tiles * kRows * k)), b(static_cast<size_t>(kCols * k));
  for (int64_t t = 0; t < row_tiles; ++t)
    pack<A, T>(g.a, !g.transpose_a, t * kRows, kRows, n, k, a.data() + t * kRows * k);
  for (int64_t col = 0; col < m; col += kCols) {
    pack<A, T>(g.b, g.transpose_b, col, kCols, m, k, b.data());
    for (int64_t t = 0; t < row_tiles; ++t) {
      A sums[kRows][kCols];
      tile(a.data() + t * kRows * k, b.data(), k, sums);
      finish(g, t * kRows, col, sums);
    }
  }
}

}  // namespace

void gemm(Device& device, const Gemm& g, Stream& stream) {
  const int64_t k = g.transpose_a ? g.a.rows : g.a.cols;
  check_gemm(g);
  device.count_gemm();
  if (g.c.size() == 0) return;
  internal::queue_arithmetic(stream, "gemm",
                             [g, k] { with_dtype(g.a.dtype, [&](auto t) { multiply<decltype(t)>(g, k); }); });
}

Tuner* gemm_tuner(Device& /*device*/) { return nullptr; }

bool fuses_gelu(Device& /*device*/, const Gemm& g) {
  check_gemm(g);
  return true;
}

}  // namespace ashlar::ASHLAR_DEV
