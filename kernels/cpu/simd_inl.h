// Vectors for the element-wise kernels, compiled once per instruction set (AVX-512, AVX2, SSE4.2 as the baseline).
// A kernel file includes "kernels/cpu/simd_targets.h", sets HWY_TARGET_INCLUDE to itself, includes hwy/foreach_target.h
// and then this header.
//
// Sums have the same number of partial sums on every instruction set, added in a fixed order, so that AVX2 and AVX-512
// (both with fused multiply-add) give the same bits.

// The include guard is toggled, since Highway includes this file once per target.
#if defined(ASHLAR_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_SIMD_INL_H_
#undef ASHLAR_KERNELS_CPU_SIMD_INL_H_
#else
#define ASHLAR_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/bf16.h"
#include "hwy/highway.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cpu/vector_inl.h"

/// Attributes of a lambda, written after its parameters. The lambda is then compiled for the current instruction set
/// and always inlined into its kernel.
#undef ASHLAR_SIMD
#define ASHLAR_SIMD HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Highway's tag of the vectors that compute with a storage type: of float for fp32 and bf16, of double for fp64.
template <typename T>
using TagOf = hn::ScalableTag<std::conditional_t<std::is_same_v<T, double>, double, float>>;
template <class D>
using VecOf = hn::Vec<D>;
template <class D>
inline constexpr int64_t kLanesOf = static_cast<int64_t>(hn::MaxLanes(D()));

/// The lanes that a load or store uses: all (Whole), or the first n (First, 0 < n < lanes). Loads set the other lanes
/// to zero.
struct Whole {};
struct First {
  size_t n;
};

template <class D, typename T>
HWY_INLINE VecOf<D> load(D d, const T* p, Whole) {
  return load(d, p);
}
template <class D, typename T>
HWY_INLINE VecOf<D> load(D d, const T* p, First part) {
  alignas(64) T lanes[kLanesOf<D>] = {};
  std::memcpy(static_cast<void*>(lanes), p, part.n * sizeof(T));
  return load(d, lanes);
}

template <class D, typename T>
HWY_INLINE void store(D d, VecOf<D> v, T* p, Whole) {
  store(d, v, p);
}
template <class D, typename T>
HWY_INLINE void store(D d, VecOf<D> v, T* p, First part) {
  alignas(64) T lanes[kLanesOf<D>];
  store(d, v, lanes);
  std::memcpy(static_cast<void*>(p), lanes, part.n * sizeof(T));
}

/// Calls f(n) for each row n of a matrix of this shape, with at least `grain` elements per thread. f is inlined if it
/// is marked ASHLAR_SIMD.
template <class F>
HWY_INLINE void for_rows(Threads& threads, const ConstView& shape, int64_t grain, const F& f) {
  parallel_for(threads, shape.rows, rows_grain(shape.cols, grain), [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t n = begin; n < end; ++n) f(n);
  });
}

/// Calls f(c, part) for each vector of a row of `cols` elements: c is its first column, `part` its lanes (Whole or
/// First).
template <class D, class F>
HWY_INLINE void for_lanes(D, int64_t cols, const F& f) {
  int64_t c = 0;
  for (; c + kLanesOf<D> <= cols; c += kLanesOf<D>) f(c, Whole());
  if (c < cols) f(c, First{static_cast<size_t>(cols - c)});
}

/// Returns `v` in the lanes of the last argument (Whole or First), and `otherwise` in the other lanes.
template <class D>
HWY_INLINE VecOf<D> keep_lanes(D, VecOf<D> v, VecOf<D>, Whole) {
  return v;
}
template <class D>
HWY_INLINE VecOf<D> keep_lanes(D d, VecOf<D> v, VecOf<D> otherwise, First part) {
  return hn::IfThenElse(hn::FirstN(d, part.n), v, otherwise);
}

/// Combines all lanes by halving: lane i with lane i + n/2, and so on.
template <class D, class Op>
HWY_INLINE hn::TFromD<D> fold([[maybe_unused]] D d, VecOf<D> v, const Op& op) {
  if constexpr (kLanesOf<D> == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return fold(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}

struct AddOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct MaxOp {  // a NaN in `a` is dropped
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

/// The number of partial results of a reduction over a row, the same on every instruction set.
template <class D>
inline constexpr int64_t kReduceLanes = 128 / static_cast<int64_t>(sizeof(hn::TFromD<D>));

/// Reduces a row: computes acc = f(acc, c, part) lane by lane, starting from `init`, and then combines all lanes by
/// `op`.
template <class D, class Op, class F>
HWY_INLINE hn::TFromD<D> reduce_lanes(D d, int64_t cols, VecOf<D> init, const Op& op, const F& f) {
  constexpr int64_t kN = kLanesOf<D>;
  constexpr int64_t kAcc = kReduceLanes<D> / kN;
  VecOf<D> acc[kAcc];
  for (int64_t k = 0; k < kAcc; ++k) acc[k] = init;
  int64_t c = 0;
  for (; c + kAcc * kN <= cols; c += kAcc * kN) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < kAcc; ++k) acc[k] = f(acc[k], c + k * kN, Whole());
  }
#pragma GCC unroll 16
  for (int64_t k = 0; k < kAcc; ++k) {
    if (c + kN <= cols) {
      acc[k] = f(acc[k], c, Whole());
    } else if (c < cols) {
      const First part{static_cast<size_t>(cols - c)};
      acc[k] = keep_lanes(d, f(acc[k], c, part), acc[k], part);
    }
    c += kN;
  }
#pragma GCC unroll 16
  for (int64_t s = kAcc / 2; s > 0; s /= 2) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < s; ++k) acc[k] = op(acc[k], acc[k + s]);
  }
  return fold(d, acc[0], op);
}

template <class D, class F>
HWY_INLINE hn::TFromD<D> sum_lanes(D d, int64_t cols, const F& f) {
  return reduce_lanes(d, cols, hn::Zero(d), AddOp(), f);
}

/// Computes two sums over a row in one pass: f(a, b, c, part) adds to both. The results are in sum_a and sum_b.
template <class D, class F>
HWY_INLINE void sum_lanes_twice(D d, int64_t cols, hn::TFromD<D>& sum_a, hn::TFromD<D>& sum_b, const F& f) {
  constexpr int64_t kN = kLanesOf<D>;
  constexpr int64_t kAcc = kReduceLanes<D> / kN;
  VecOf<D> a[kAcc];
  VecOf<D> b[kAcc];
  for (int64_t k = 0; k < kAcc; ++k) a[k] = b[k] = hn::Zero(d);
  int64_t c = 0;
  for (; c + kAcc * kN <= cols; c += kAcc * kN) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < kAcc; ++k) f(a[k], b[k], c + k * kN, Whole());
  }
#pragma GCC unroll 16
  for (int64_t k = 0; k < kAcc; ++k) {
    if (c + kN <= cols) {
      f(a[k], b[k], c, Whole());
    } else if (c < cols) {
      const First part{static_cast<size_t>(cols - c)};
      VecOf<D> new_a = a[k];
      VecOf<D> new_b = b[k];
      f(new_a, new_b, c, part);
      a[k] = keep_lanes(d, new_a, a[k], part);
      b[k] = keep_lanes(d, new_b, b[k], part);
    }
    c += kN;
  }
#pragma GCC unroll 16
  for (int64_t s = kAcc / 2; s > 0; s /= 2) {
#pragma GCC unroll 16
    for (int64_t k = 0; k < s; ++k) {
      a[k] = hn::Add(a[k], a[k + s]);
      b[k] = hn::Add(b[k], b[k + s]);
    }
  }
  sum_a = fold(d, a[0], AddOp());
  sum_b = fold(d, b[0], AddOp());
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
