// Register-tiled matrix products and panel packing for attention, compiled once per instruction set.
// A tile keeps up to 6 rows x 4 vectors of C in registers (6 x 2 if there are only 16 registers). For each k it loads
// up to 4 vectors of B and broadcasts one number of A per row. So a full 6 x 4 tile needs 10 loads for 24
// multiply-adds, a 6 x 2 tile 8 loads for 12.

#if defined(ASHLAR_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef ASHLAR_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define ASHLAR_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <cstdint>

#include "core/base/bf16.h"
#include "hwy/highway.h"
#include "kernels/cpu/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::attention {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

/// A product C[r][c] = init + sum over k of A[r][k] B[k][c], where init is 0 (with `zero`), C, or c_scale[r] * C. The
/// sum is one chain in ascending k, so dividing k into several products changes no bit. B and C are vector-aligned and
/// `vectors` vectors wide.
template <typename T>
struct Product {
  const T* a = nullptr;
  int64_t a_row = 0, a_k = 0;  ///< strides in elements, from A[r][k] to A[r+1][k] and to A[r][k+1]
  const T* b = nullptr;
  int64_t b_row = 0;
  T* c = nullptr;
  int64_t c_row = 0;
  const T* c_scale = nullptr;
  bool zero = false;
  int64_t rows = 0;
  int64_t vectors = 0;
  int64_t k = 0;
};

template <int kRows, int kVectors, typename T>
HWY_INLINE void product_tile(const Product<T>& p, int64_t row, int64_t vector) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int64_t N = kLanes<T>;
  const T* HWY_RESTRICT a = p.a + row * p.a_row;
  const T* HWY_RESTRICT b = p.b + vector * N;
  T* HWY_RESTRICT c = p.c + row * p.c_row + vector * N;
  const int64_t a_row = p.a_row, a_k = p.a_k, b_row = p.b_row;
  V acc[kRows][kVectors];
  if (p.zero) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
    }
  } else if (p.c_scale != nullptr) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V scale = hn::Set(d, p.c_scale[row + r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Mul(scale, hn::Load(d, c + r * p.c_row + v * N));
    }
  } else {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Load(d, c + r * p.c_row + v * N);
    }
  }
  for (int64_t k = p.k; k > 0; --k) {
    V bv[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bv[v] = hn::Load(d, b + v * N);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V av = hn::Set(d, a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(av, bv[v], acc[r][v]);
    }
    a += a_k;
    b += b_row;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[r][v], d, c + r * p.c_row + v * N);
  }
}

template <int kVectors, typename T>
HWY_INLINE void product_rows(const Product<T>& p, int64_t vector) {
  int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) product_tile<kTileRows, kVectors>(p, row, vector);
  if (p.rows - row >= 4) {
    product_tile<4, kVectors>(p, row, vector);
    row += 4;
  }
  if (p.rows - row >= 2) {
    product_tile<2, kVectors>(p, row, vector);
    row += 2;
  }
  if (p.rows > row) product_tile<1, kVectors>(p, row, vector);
}

/// Computes a product. Divides the columns into panels of nearly equal width, at most kTileVectors vectors each.
template <typename T>
HWY_NOINLINE void product(const Product<T>& p) {
  int64_t panels = (p.vectors + kTileVectors - 1) / kTileVectors;
  for (int64_t vector = 0; vector < p.vectors; --panels) {
    const int64_t width = (p.vectors - vector + panels - 1) / panels;
    if (width == 1) product_rows<1>(p, vector);
    if (width == 2) product_rows<2>(p, vector);
    if constexpr (kTileVectors > 2) {
      if (width == 3) product_rows<3>(p, vector);
      if (width == 4) product_rows<4>(p, vector);
    }
    vector += width;
  }
}

/// dst[0..n) = scale * src[0..n), and dst[n..padded) = 0. dst is vector-aligned; `padded` is a multiple of kLanes.
template <typename S, typename T>
HWY_INLINE void pack_row(const S* HWY_RESTRICT src, int64_t n, T scale, T* HWY_RESTRICT dst, int64_t padded) {
  const Tag<T> d;
  const auto factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>)
    hn::Store(hn::Mul(factor, cpu::HWY_NAMESPACE::load(d, src + i)), d, dst + i);
  for (; i < n; ++i) dst[i] = scale * static_cast<T>(src[i]);
  for (; i < padded; ++i) dst[i] = 0;
}

/// dst[0..n) = scale * src[0..n), or dst[0..n) += scale * src[0..n) with `accumulate`. Rounds once, at the store.
template <typename S, typename T>
HWY_INLINE void unpack_row(const T* HWY_RESTRICT src, int64_t n, T scale, bool accumulate, S* HWY_RESTRICT dst) {
  const Tag<T> d;
  const auto factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    auto x = hn::Mul(factor, hn::Load(d, src + i));
    if (accumulate) x = hn::Add(cpu::HWY_NAMESPACE::load(d, dst + i), x);
    cpu::HWY_NAMESPACE::store(d, x, dst + i);
  }
  for (; i < n; ++i) {
    T x = scale * src[i];
    if (accumulate) x = static_cast<T>(dst[i]) + x;
    dst[i] = static_cast<S>(x);
  }
}

/// Returns the sum of a[i] * b[i] over n elements, computed in type T.
template <typename S, typename T>
HWY_INLINE T dot_row(const S* HWY_RESTRICT a, const S* HWY_RESTRICT b, int64_t n, T /*tag*/) {
  const Tag<T> d;
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>)
    sums = hn::MulAdd(cpu::HWY_NAMESPACE::load(d, a + i), cpu::HWY_NAMESPACE::load(d, b + i), sums);
  T sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += static_cast<T>(a[i]) * static_cast<T>(b[i]);
  return sum;
}

/// Loads four numbers from each of kLanes / 4 rows that are `row` elements apart: lanes 4i to 4i + 3 get src[i * row]
/// to src[i * row + 3].
template <class D>
HWY_INLINE hn::Vec<D> load_quads(D d, const float* src, int64_t row) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, src);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = static_cast<int64_t>(hn::MaxLanes(d)) / 8;
    return hn::Combine(d, load_quads(half, src + kRows * row, row), load_quads(half, src, row));
  }
}

/// Returns the width of a packed row of D numbers, which zeros fill up to a multiple of kLanes.
template <typename T>
HWY_INLINE int64_t padded_width(int64_t D) {
  return (D + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}
/// Returns the number of rows that pack_transposed writes for source rows of D numbers: D, for fp32 rounded up to a
/// multiple of four.
template <typename T>
HWY_INLINE int64_t transposed_rows(int64_t D) {
  return sizeof(T) == 4 ? (D + 3) / 4 * 4 : D;
}

/// dst[c][r] = src[r][c] for r < rows and c < cols. `rows` is a multiple of kLanes, `cols` is a result of
/// transposed_rows; src_row and dst_row are the row strides.
HWY_INLINE void pack_transposed(const float* HWY_RESTRICT src, int64_t src_row, int64_t rows, int64_t cols,
                                float* HWY_RESTRICT dst, int64_t dst_row) {
  const Tag<float> d;
  const hn::Repartition<double, Tag<float>> d64;  // pairs of fp32 numbers
  for (int64_t r = 0; r < rows; r += kLanes<float>) {
    for (int64_t c = 0; c < cols; c += 4) {
      const float* HWY_RESTRICT in = src + r * src_row + c;
      float* HWY_RESTRICT out = dst + c * dst_row + r;
      // Block i (128 bits) of row_n has four numbers of row 4i + n. Blocks i of the four vectors are transposed, 4 x 4.
      const auto row_0 = load_quads(d, in, 4 * src_row);
      const auto row_1 = load_quads(d, in + src_row, 4 * src_row);
      const auto row_2 = load_quads(d, in + 2 * src_row, 4 * src_row);
      const auto row_3 = load_quads(d, in + 3 * src_row, 4 * src_row);
      const auto low_01 = hn::BitCast(d64, hn::InterleaveLower(d, row_0, row_1));
      const auto high_01 = hn::BitCast(d64, hn::InterleaveUpper(d, row_0, row_1));
      const auto low_23 = hn::BitCast(d64, hn::InterleaveLower(d, row_2, row_3));
      const auto high_23 = hn::BitCast(d64, hn::InterleaveUpper(d, row_2, row_3));
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low_01, low_23)), d, out);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low_01, low_23)), d, out + dst_row);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high_01, high_23)), d, out + 2 * dst_row);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high_01, high_23)), d, out + 3 * dst_row);
    }
  }
}
HWY_INLINE void pack_transposed(const double* HWY_RESTRICT src, int64_t src_row, int64_t rows, int64_t cols,
                                double* HWY_RESTRICT dst, int64_t dst_row) {
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) dst[c * dst_row + r] = src[r * src_row + c];
  }
}

/// dst[0..n) = 0. n must be a multiple of kLanes; dst is vector-aligned.
template <typename T>
HWY_INLINE void clear(T* dst, int64_t n) {
  const Tag<T> d;
  for (int64_t i = 0; i < n; i += kLanes<T>) hn::Store(hn::Zero(d), d, dst + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu::attention
HWY_AFTER_NAMESPACE();

#endif  // ASHLAR_KERNELS_CPU_ATTENTION_TILE_INL_H_
