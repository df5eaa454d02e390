// Rotary positions on the leading heads of each row.
// Memory-bound: 2 storage elements moved (8 B in fp32) for 3 flops per element; the tables of a row stay in L1 while
// its heads are processed. Threads process contiguous rows. Both styles turn a pair (a, b) into fma(a, cos, -(b sin))
// and fma(b, cos, a sin), so that a permutation of the rows of the projection turns one style into the other without
// changing a bit.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_ROPE_ONCE
#define ASHLAR_KERNELS_CPU_ROPE_ONCE
namespace ashlar::cpu {
constexpr int64_t kMaxRopeDims = 1024;
}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

template <class D, typename T, class Part>
HWY_INLINE void put(D d, VecOf<D> v, T* y, bool accumulate, Part part) {
  store(d, accumulate ? hn::Add(load(d, y, part), v) : v, y, part);
}

template <typename T, typename A>
void rotate_half(const T* x, const A* cos, const A* sin, bool inverse, bool accumulate, T* y, int64_t half) {
  const TagOf<T> d;
  for_lanes(d, half, [&](int64_t m, auto part) ASHLAR_SIMD {
    const auto a = load(d, x + m, part);
    const auto b = load(d, x + half + m, part);
    const auto cos_v = load(d, cos + m, part);
    auto sin_v = load(d, sin + m, part);
    if (inverse) sin_v = hn::Neg(sin_v);
    put(d, hn::MulSub(a, cos_v, hn::Mul(b, sin_v)), y + m, accumulate, part);
    put(d, hn::MulAdd(b, cos_v, hn::Mul(a, sin_v)), y + half + m, accumulate, part);
  });
}

/// Expands the tables from pairs to the dims of a head: both dims of a pair get its cos; the first dim gets -sin, the
/// second dim gets sin.
template <typename A>
void spread_tables(const A* cos, const A* sin, bool inverse, int64_t half, A* spread_cos, A* spread_sin) {
  for (int64_t m = 0; m < half; ++m) {
    spread_cos[2 * m] = spread_cos[2 * m + 1] = cos[m];
    const A s = inverse ? -sin[m] : sin[m];
    spread_sin[2 * m] = -s;
    spread_sin[2 * m + 1] = s;
  }
}

template <typename T, typename A>
void rotate_interleaved(const T* x, const A* spread_cos, const A* spread_sin, bool accumulate, T* y, int64_t dims) {
  const TagOf<T> d;
  static_assert(kLanesOf<TagOf<T>> % 2 == 0);
  for_lanes(d, dims, [&](int64_t c, auto part) ASHLAR_SIMD {
    const auto v = load(d, x + c, part);
    const auto swapped = hn::Reverse2(d, v);
    const auto product = hn::Mul(swapped, load(d, spread_sin + c, part));
    put(d, hn::MulAdd(v, load(d, spread_cos + c, part), product), y + c, accumulate, part);
  });
}

template <typename T>
void pass_through(const T* x, bool accumulate, T* y, int64_t count) {
  if (!accumulate) {
    if (x != y) std::memcpy(static_cast<void*>(y), x, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  const TagOf<T> d;
  for_lanes(d, count, [&](int64_t c, auto part) ASHLAR_SIMD { put(d, load(d, x + c, part), y + c, true, part); });
}

template <typename T>
void rope_rows(const Rope& r, int64_t begin, int64_t end) {
  using A = hn::TFromD<TagOf<T>>;
  A spread_cos[kMaxRopeDims];
  A spread_sin[kMaxRopeDims];
  const bool accumulate = r.mode == GradMode::kAccumulate;
  const int32_t* positions = row_of<int32_t>(r.positions, 0);
  for (int64_t n = begin; n < end; ++n) {
    prefetch_row(r.x, n + 1);
    prefetch_row(r.y, n + 1);
    const A* cos = row_of<A>(r.cos, positions[n]);
    const A* sin = row_of<A>(r.sin, positions[n]);
    if (r.style == RopeStyle::kInterleaved) spread_tables(cos, sin, r.inverse, r.dims / 2, spread_cos, spread_sin);
    const T* x = row_of<T>(r.x, n);
    T* y = row_of<T>(r.y, n);
    for (int64_t h = 0; h < r.rotated_heads; ++h, x += r.head_dim, y += r.head_dim) {
      if (r.style == RopeStyle::kHalf) {
        rotate_half<T, A>(x, cos, sin, r.inverse, accumulate, y, r.dims / 2);
      } else {
        rotate_interleaved<T, A>(x, spread_cos, spread_sin, accumulate, y, r.dims);
      }
      pass_through(x + r.dims, accumulate, y + r.dims, r.head_dim - r.dims);
    }
    pass_through(x, accumulate, y, (r.heads - r.rotated_heads) * r.head_dim);
  }
}

void rope_impl(const Rope& r, Threads& threads) {
  with_storage("rope", r.x.dtype, [&](auto t) {
    parallel_for(threads, r.x.rows, rows_grain(r.x.cols, kCheapGrain),
                 [&](int64_t begin, int64_t end) { rope_rows<decltype(t)>(r, begin, end); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
void CpuBackend::launch(const Rope& args, Stream&) {
  if (args.dims > kMaxRopeDims) {
    throw input_error("rope", "dims = ", args.dims,
                      " is too large for the cpu backend; set rope.dims or rope.global_dims to at most ", kMaxRopeDims);
  }
  ASHLAR_FOR_ISA(info_.isa, rope_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
