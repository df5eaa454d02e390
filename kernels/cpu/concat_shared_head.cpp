// Concatenates leading columns that all heads share with each head's own columns, and computes the gradients of both.
// Memory-bound. With N rows, H heads, S shared columns and P own columns per head, forward reads N (S + H P) elements
// and writes N H (S + P). Backward does the reverse, with an addition for each of the H S shared elements of a row.
// Threads process contiguous rows; sums add the heads in order.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/concat_shared_head.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

template <typename T>
void copy_columns(const T* x, T* y, int64_t count) {
  if (count > 0) std::memcpy(static_cast<void*>(y), x, static_cast<size_t>(count) * sizeof(T));
}

template <typename T>
void join_row(const ConcatSharedHead& a, int64_t n) {
  const int64_t shared = a.shared.cols, own = a.own.cols / a.heads;
  prefetch_row(a.own, n + 1);
  const T* first = row_of<T>(a.shared, n);
  const T* rest = row_of<T>(a.own, n);
  T* y = row_of<T>(a.y, n);
  for (int64_t h = 0; h < a.heads; ++h, rest += own, y += shared + own) {
    copy_columns(first, y, shared);
    copy_columns(rest, y + shared, own);
  }
}

template <typename T>
void add_row(const ConcatSharedHeadBackward& a, int64_t n) {
  const TagOf<T> d;
  const int64_t shared = a.dshared.cols, own = a.down.cols / a.heads, width = shared + own;
  const bool accumulate = a.mode == GradMode::kAccumulate;
  prefetch_row(a.dy, n + 1);
  const T* dy = row_of<T>(a.dy, n);
  // 1. the shared columns
  T* dshared = row_of<T>(a.dshared, n);
  for_lanes(d, shared, [&](int64_t c, auto part) ASHLAR_SIMD {
    auto sum = load(d, dy + c, part);
    for (int64_t h = 1; h < a.heads; ++h) sum = hn::Add(sum, load(d, dy + h * width + c, part));
    if (accumulate) sum = hn::Add(load(d, dshared + c, part), sum);
    store(d, sum, dshared + c, part);
  });
  // 2. the own columns of each head
  T* down = row_of<T>(a.down, n);
  for (int64_t h = 0; h < a.heads; ++h, down += own) {
    const T* from = dy + h * width + shared;
    if (!accumulate) {
      copy_columns(from, down, own);
      continue;
    }
    for_lanes(d, own, [&](int64_t c, auto part) ASHLAR_SIMD {
      store(d, hn::Add(load(d, down + c, part), load(d, from + c, part)), down + c, part);
    });
  }
}

void concat_shared_head_impl(const ConcatSharedHead& a, Threads& threads) {
  with_storage("concat_shared_head", a.y.dtype, [&](auto t) {
    for_rows(threads, a.y, kCheapGrain, [&](int64_t n) ASHLAR_SIMD { join_row<decltype(t)>(a, n); });
  });
}

void concat_shared_head_backward_impl(const ConcatSharedHeadBackward& a, Threads& threads) {
  with_storage("concat_shared_head_backward", a.dy.dtype, [&](auto t) {
    for_rows(threads, a.dy, kCheapGrain, [&](int64_t n) ASHLAR_SIMD { add_row<decltype(t)>(a, n); });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
ASHLAR_LAUNCH_FOR_ISA(ConcatSharedHead, concat_shared_head_impl)
ASHLAR_LAUNCH_FOR_ISA(ConcatSharedHeadBackward, concat_shared_head_backward_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
