// Table lookup and its gradient.
// Memory-bound: forward moves 2 storage elements per element; backward reads dy once and reads and writes the table
// rows of its ids. Backward: ids are stably sorted, so every table row has one writer, and rows of dy are added in
// ascending order. An item of work is a block of columns and a block of sorted rows; it processes each run of equal ids
// that starts in its block of rows, to the end of the run.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

void embedding_forward_impl(const EmbeddingForward& a, Threads& threads) {
  with_storage("embedding_forward", a.table.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const TagOf<T> d;
    const int64_t cols = a.table.cols;
    const bool accumulate = a.mode == GradMode::kAccumulate;
    const auto scale = hn::Set(d, static_cast<A>(a.scale));
    const int32_t* ids = row_of<int32_t>(a.ids, 0);
    for_rows(threads, a.out, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
      const int64_t id = ids[n] - a.first_id;
      T* out = row_of<T>(a.out, n);
      if (id < 0 || id >= a.table.rows) {
        if (!accumulate) std::memset(static_cast<void*>(out), 0, static_cast<size_t>(cols) * sizeof(T));
        return;
      }
      const T* row = row_of<T>(a.table, id);
      if (!accumulate && a.scale == 1) {
        std::memcpy(static_cast<void*>(out), row, static_cast<size_t>(cols) * sizeof(T));
        return;
      }
      for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
        const auto v = load(d, row + c, part);
        store(d, accumulate ? hn::MulAdd(scale, v, load(d, out + c, part)) : hn::Mul(scale, v), out + c, part);
      });
    });
  });
}

/// Adds scale times the sum of the rows order[first], ..., order[last - 1] of dy, which all have the same id, to the
/// columns [c0, c1) of the table row of this id.
template <typename T>
void add_run(const EmbeddingBackward& a, const int32_t* ids, const int32_t* order, int64_t first, int64_t last,
             int64_t c0, int64_t c1) {
  using A = hn::TFromD<TagOf<T>>;
  const TagOf<T> d;
  A* out = row_of<A>(a.dtable, ids[order[first]] - a.first_id) + c0;
  const auto scale = hn::Set(d, static_cast<A>(a.scale));
  for_lanes(d, c1 - c0, [&](int64_t c, auto part) ASHLAR_SIMD {
    auto sum = load(d, row_of<T>(a.dy, order[first]) + c0 + c, part);
    for (int64_t i = first + 1; i < last; ++i) sum = hn::Add(sum, load(d, row_of<T>(a.dy, order[i]) + c0 + c, part));
    store(d, hn::MulAdd(scale, sum, load(d, out + c, part)), out + c, part);
  });
}

void embedding_backward_impl(const EmbeddingBackward& a, Threads& threads) {
  constexpr int64_t kColumns = 128;
  constexpr int64_t kEntries = 64;
  const int64_t cols = a.dtable.cols;
  const int32_t* ids = row_of<int32_t>(a.ids, 0);
  const int32_t* order = row_of<int32_t>(a.order, 0);
  with_storage("embedding_backward", a.dy.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    // 1. a new gradient starts from zero, in all rows
    if (a.mode == GradMode::kOverwrite) {
      for_rows(threads, a.dtable, kCheapGrain,
               [&](int64_t v) ASHLAR_SIMD { std::fill_n(row_of<A>(a.dtable, v), cols, A{0}); });
    }
    // 2. the range of `order` whose ids are in this table
    const auto first_at_least = [&](int64_t id) {
      const int32_t* end = order + a.dy.rows;
      return std::partition_point(order, end, [&](int32_t row) { return ids[row] < id; }) - order;
    };
    const int64_t low = first_at_least(a.first_id);
    const int64_t high = first_at_least(a.first_id + a.dtable.rows);
    // 3. runs of equal ids; the item in whose block of entries a run starts processes the whole run
    const int64_t column_blocks = (cols + kColumns - 1) / kColumns;
    const int64_t entry_blocks = (high - low + kEntries - 1) / kEntries;
    parallel_for(threads, column_blocks * entry_blocks, std::max<int64_t>(1, kCheapGrain / (kColumns * kEntries)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t item = begin; item < end; ++item) {
                     const int64_t c0 = (item % column_blocks) * kColumns;
                     const int64_t c1 = std::min(cols, c0 + kColumns);
                     const int64_t stop = std::min(high, low + (item / column_blocks + 1) * kEntries);
                     int64_t i = low + (item / column_blocks) * kEntries;
                     while (i > low && i < stop && ids[order[i]] == ids[order[i - 1]]) ++i;
                     while (i < stop) {
                       int64_t last = i + 1;
                       while (last < high && ids[order[last]] == ids[order[i]]) ++last;
                       add_run<T>(a, ids, order, i, last, c0, c1);
                       i = last;
                     }
                   }
                 });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
ASHLAR_LAUNCH_FOR_ISA(EmbeddingForward, embedding_forward_impl)
ASHLAR_LAUNCH_FOR_ISA(EmbeddingBackward, embedding_backward_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
