// A matrix times one learned number, and the gradients of both.
// Memory-bound: forward moves 2 storage elements per element for 1 flop, backward moves 3 for 3 flops. Threads process
// whole rows. For ds, the sums of rows are added in row order in double, so that the thread count does not change a
// bit.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/learned_scale.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Returns the learned number in the arithmetic type, in every lane.
template <typename T>
HWY_INLINE VecOf<TagOf<T>> factor_of(const ConstView& s) {
  const TagOf<T> d;
  return hn::Set(d, static_cast<hn::TFromD<TagOf<T>>>(widen(*static_cast<const T*>(s.data))));
}

void learned_scale_impl(const LearnedScale& a, Threads& threads) {
  with_storage("learned_scale", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    const TagOf<T> d;
    const auto s = factor_of<T>(a.s);
    for_row_pieces(threads, {a.x, a.y}, kCheapGrain, [&](int64_t n, int64_t c, int64_t count) {
      const T* x = row_of<T>(a.x, n) + c;
      T* y = row_of<T>(a.y, n) + c;
      for_lanes(d, count,
                [&](int64_t i, auto part) ASHLAR_SIMD { store(d, hn::Mul(load(d, x + i, part), s), y + i, part); });
    });
  });
}

/// `row_sums` has space for one accumulate-type number per row if ds is needed.
void learned_scale_backward_impl(const LearnedScaleBackward& a, Threads& threads, void* row_sums) {
  with_storage("learned_scale_backward", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const TagOf<T> d;
    const auto s = factor_of<T>(a.s);
    const bool accumulate = a.dx_mode == GradMode::kAccumulate;
    A* const sums = static_cast<A*>(row_sums);
    for_rows(threads, a.x, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
      const T* dy = row_of<T>(a.dy, n);
      const T* x = row_of<T>(a.x, n);
      // 1. the contribution of this row to ds, before dx may overwrite dy
      if (sums != nullptr) {
        sums[n] = sum_lanes(d, a.x.cols, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
          return hn::MulAdd(load(d, dy + c, part), load(d, x + c, part), acc);
        });
      }
      // 2. dx
      if (a.dx_mode == GradMode::kSkip) return;
      T* dx = row_of<T>(a.dx, n);
      for_lanes(d, a.x.cols, [&](int64_t c, auto part) ASHLAR_SIMD {
        const auto v = load(d, dy + c, part);
        store(d, accumulate ? hn::MulAdd(v, s, load(d, dx + c, part)) : hn::Mul(v, s), dx + c, part);
      });
    });
    // 3. the sums of rows, added in order
    if (sums == nullptr) return;
    double total = 0;
    for (int64_t n = 0; n < a.x.rows; ++n) total += sums[n];
    A& ds = *static_cast<A*>(a.ds.data);
    ds = static_cast<A>(a.param_mode == GradMode::kAccumulate ? ds + total : total);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {

ASHLAR_LAUNCH_FOR_ISA(LearnedScale, learned_scale_impl)

void CpuBackend::launch(const LearnedScaleBackward& args, Stream&) {
  const bool sums = args.param_mode != GradMode::kSkip;
  const ScopedBlock row_sums(workspace(), sums ? args.x.rows * size_of(accumulate_dtype(args.x.dtype)) : 0);
  ASHLAR_FOR_ISA(info_.isa, learned_scale_backward_impl)(args, threads_, sums ? row_sums.data() : nullptr);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
