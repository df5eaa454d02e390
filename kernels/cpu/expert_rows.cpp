// Rows of a micro-batch to their experts and back.
// sort_choices: 1. counts of experts, 2. offsets, 3. slots. One thread: two passes over 4 B per choice, little beside
//   the rows that are then copied.
// dispatch_rows: 1. each row, once read, is written to its slots, 2. dots with `others`, 3. rows without a choice are
//   zero. combine_rows: 1. y, a sum of the rows of up to k slots, 2. dots with `others`.
// Memory-bound: for k choices of a row of C elements, dispatch reads C and writes k C elements, combine reads k C and
// writes C, and `others` is another k C (dispatch) or C (combine) for 2 flops per element. Threads process whole rows
// of the micro-batch. No two choices have one slot, so that no two threads write to one row.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_rows.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE hn::TFromD<TagOf<T>> dot_of_rows(const T* a, const T* b, int64_t cols) {
  const TagOf<T> d;
  return sum_lanes(d, cols, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    return hn::MulAdd(load(d, a + c, part), load(d, b + c, part), acc);
  });
}

void dispatch_rows_impl(const DispatchRows& a, Threads& threads) {
  with_storage("dispatch_rows", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const TagOf<T> d;
    const int64_t cols = a.x.cols, k = a.slots.cols;
    const size_t row_bytes = static_cast<size_t>(cols) * sizeof(T);
    const int64_t grain = kCheapGrain / std::max<int64_t>(k, 1);
    for_rows(threads, a.x, grain, [&](int64_t n) ASHLAR_SIMD {
      const T* x = row_of<T>(a.x, n);
      for (int64_t j = 0; j < k; ++j) {
        const int32_t slot = row_of<int32_t>(a.slots, n)[j];
        if (a.dots) row_of<A>(a.dots, n)[j] = 0;
        if (slot < 0) continue;
        // 1. the row of the slot
        T* out = row_of<T>(a.rows, slot);
        if (a.weights) {
          const auto weight = hn::Set(d, row_of<A>(a.weights, n)[j]);
          for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
            store(d, hn::Mul(weight, load(d, x + c, part)), out + c, part);
          });
        } else {
          std::memcpy(static_cast<void*>(out), x, row_bytes);
        }
        // 2. its dot
        if (a.dots) row_of<A>(a.dots, n)[j] = dot_of_rows(x, row_of<T>(a.others, slot), cols);
      }
    });
    // 3. rows without a choice
    const int64_t used = row_of<int32_t>(a.offsets, 0)[a.offsets.size() - 1];
    parallel_for(threads, a.rows.rows - used, rows_grain(cols, kCheapGrain), [&](int64_t begin, int64_t end) {
      for (int64_t s = used + begin; s < used + end; ++s)
        std::memset(static_cast<void*>(row_of<T>(a.rows, s)), 0, row_bytes);
    });
  });
}

void combine_rows_impl(const CombineRows& a, Threads& threads) {
  with_storage("combine_rows", a.y.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const TagOf<T> d;
    const int64_t cols = a.y.cols, k = a.slots.cols;
    const int64_t grain = kCheapGrain / std::max<int64_t>(k, 1);
    for_rows(threads, a.y, grain, [&](int64_t n) ASHLAR_SIMD {
      const int32_t* slots = row_of<int32_t>(a.slots, n);
      const A* weights = a.weights ? row_of<A>(a.weights, n) : nullptr;
      T* y = row_of<T>(a.y, n);
      // 1. y
      for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
        auto sum = hn::Zero(d);
        for (int64_t j = 0; j < k; ++j) {
          if (slots[j] < 0) continue;
          const auto v = load(d, row_of<T>(a.rows, slots[j]) + c, part);
          sum = weights == nullptr ? hn::Add(sum, v) : hn::MulAdd(hn::Set(d, weights[j]), v, sum);
        }
        if (a.mode == GradMode::kAccumulate) sum = hn::Add(load(d, y + c, part), sum);
        store(d, sum, y + c, part);
      });
      // 2. dots
      for (int64_t j = 0; a.dots && j < k; ++j) {
        row_of<A>(a.dots, n)[j] =
            slots[j] < 0 ? A{0} : dot_of_rows(row_of<T>(a.others, n), row_of<T>(a.rows, slots[j]), cols);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {

void CpuBackend::launch(const SortChoices& args, Stream&) {
  const int64_t groups = args.offsets.size() - 1;
  const auto* choices = static_cast<const int32_t*>(args.choices.data);
  auto* offsets = static_cast<int32_t*>(args.offsets.data);
  auto* slots = static_cast<int32_t*>(args.slots.data);
  const auto is_here = [&](int64_t group) { return group >= 0 && group < groups; };
  // 1. counts: offsets[g + 1] is the number of choices of group g
  std::fill_n(offsets, groups + 1, 0);
  for (int64_t i = 0; i < args.choices.size(); ++i) {
    const int64_t group = choices[i] - args.first_expert;
    if (is_here(group)) ++offsets[group + 1];
  }
  // 2. offsets
  for (int64_t g = 0; g < groups; ++g) offsets[g + 1] += offsets[g];
  // 3. slots: offsets[g] moves to the end of the group, which is where the next group begins
  for (int64_t i = 0; i < args.choices.size(); ++i) {
    const int64_t group = choices[i] - args.first_expert;
    slots[i] = is_here(group) ? offsets[group]++ : -1;
  }
  for (int64_t g = groups; g > 0; --g) offsets[g] = offsets[g - 1];
  offsets[0] = 0;
}

ASHLAR_LAUNCH_FOR_ISA(DispatchRows, dispatch_rows_impl)
ASHLAR_LAUNCH_FOR_ISA(CombineRows, combine_rows_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
