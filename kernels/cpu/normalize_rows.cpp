// Scales rows to length one, and computes the gradient.
// Forward reads a row twice, the second time from cache, and writes it; backward reads two rows twice. Memory-bound.
// Threads process whole rows.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/normalize_rows.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

template <typename T>
void normalize_row(const NormalizeRows& a, int64_t v) {
  const TagOf<T> d;
  using A = hn::TFromD<TagOf<T>>;
  const T* w = row_of<T>(a.w, v);
  T* y = row_of<T>(a.y, v);
  // 1. the length of the row
  const double squares = sum_lanes(d, a.w.cols, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    const auto x = load(d, w + c, part);
    return hn::MulAdd(x, x, acc);
  });
  const auto inverse = static_cast<A>(1 / std::max(std::sqrt(squares), kShortestRow));
  static_cast<A*>(a.inverse.data)[v] = inverse;
  // 2. the scaled row
  const auto inverse_v = hn::Set(d, inverse);
  for_lanes(d, a.w.cols,
            [&](int64_t c, auto part) ASHLAR_SIMD { store(d, hn::Mul(load(d, w + c, part), inverse_v), y + c, part); });
}

template <typename T>
void normalize_row_backward(const NormalizeRowsBackward& a, int64_t v) {
  const TagOf<T> d;
  using A = hn::TFromD<TagOf<T>>;
  const T* w = row_of<T>(a.w, v);
  const A* dy = row_of<A>(a.dy, v);
  A* dw = row_of<A>(a.dw, v);
  // 1. the dot product w . dy, and from it the factor with which w is subtracted from dy
  const A inverse = static_cast<const A*>(a.inverse.data)[v];
  const A product = sum_lanes(d, a.w.cols, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    return hn::MulAdd(load(d, w + c, part), load(d, dy + c, part), acc);
  });
  const bool too_short = inverse >= static_cast<A>(1 / kShortestRow);
  const A along = too_short ? A{0} : product * inverse * inverse;
  // 2. dw
  const auto inverse_v = hn::Set(d, inverse), along_v = hn::Set(d, along);
  for_lanes(d, a.w.cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    auto grad = hn::Mul(inverse_v, hn::NegMulAdd(load(d, w + c, part), along_v, load(d, dy + c, part)));
    if (a.mode == GradMode::kAccumulate) grad = hn::Add(load(d, dw + c, part), grad);
    store(d, grad, dw + c, part);
  });
}

void normalize_rows_impl(const NormalizeRows& a, Threads& threads) {
  with_storage("normalize_rows", a.w.dtype, [&](auto t) {
    for_rows(threads, a.w, kCheapGrain, [&](int64_t v) ASHLAR_SIMD { normalize_row<decltype(t)>(a, v); });
  });
}

void normalize_rows_backward_impl(const NormalizeRowsBackward& a, Threads& threads) {
  with_storage("normalize_rows_backward", a.w.dtype, [&](auto t) {
    for_rows(threads, a.w, kCheapGrain, [&](int64_t v) ASHLAR_SIMD { normalize_row_backward<decltype(t)>(a, v); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
ASHLAR_LAUNCH_FOR_ISA(NormalizeRows, normalize_rows_impl)
ASHLAR_LAUNCH_FOR_ISA(NormalizeRowsBackward, normalize_rows_backward_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
