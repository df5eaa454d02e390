// Table lookup and its gradient.
// Memory-bound: forward moves 2 storage elements an element; backward reads dy once and reads and writes the named
// table rows. Backward: the batch's stable sort of its ids gives every table row one writer, and rows of dy are added
// in ascending order; threads take (run of equal ids, block of columns).

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

void embedding_forward_impl(const EmbeddingForward& a, int threads) {
  with_storage("embedding_forward", a.table.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const TagOf<T> d;
    const int64_t cols = a.table.cols;
    const bool accumulate = a.mode == GradMode::kAccumulate;
    const auto scale = hn::Set(d, static_cast<A>(a.scale));
    parallel_for(threads, a.out.rows, rows_grain(cols, kCheapGrain), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t id = a.ids[n] - a.first_id;
        T* out = row_of<T>(a.out, n);
        if (id < 0 || id >= a.table.rows) {
          if (!accumulate) std::memset(static_cast<void*>(out), 0, static_cast<size_t>(cols) * sizeof(T));
          continue;
        }
        const T* row = row_of<T>(a.table, id);
        if (!accumulate && a.scale == 1) {
          std::memcpy(static_cast<void*>(out), row, static_cast<size_t>(cols) * sizeof(T));
          continue;
        }
        for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
          const auto v = load(d, row + c, part);
          store(d, accumulate ? hn::MulAdd(scale, v, load(d, out + c, part)) : hn::Mul(scale, v), out + c, part);
        });
      }
    });
  });
}

/// dtable[id][c0, c1) by mode from rows order[first, last) of dy, which all have this id.
template <typename T>
void add_run(const EmbeddingBackward& a, int64_t first, int64_t last, int64_t c0, int64_t c1) {
  using A = hn::TFromD<TagOf<T>>;
  const TagOf<T> d;
  A* out = row_of<A>(a.dtable, a.ids[a.order[first]] - a.first_id) + c0;
  const auto scale = hn::Set(d, static_cast<A>(a.scale));
  for_lanes(d, c1 - c0, [&](int64_t c, auto part) ASHLAR_SIMD {
    auto sum = load(d, row_of<T>(a.dy, a.order[first]) + c0 + c, part);
    for (int64_t i = first + 1; i < last; ++i) sum = hn::Add(sum, load(d, row_of<T>(a.dy, a.order[i]) + c0 + c, part));
    store(d, hn::MulAdd(scale, sum, load(d, out + c, part)), out + c, part);
  });
}

void embedding_backward_impl(const EmbeddingBackward& a, int threads) {
  constexpr int64_t kColumns = 128;
  constexpr int64_t kEntries = 64;
  const int64_t cols = a.dtable.cols;
  with_storage("embedding_backward", a.dy.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    // 1. a fresh gradient starts from zero, named or not
    if (a.mode == GradMode::kOverwrite) {
      parallel_for(threads, a.dtable.rows, rows_grain(cols, kCheapGrain), [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) std::fill_n(row_of<A>(a.dtable, v), cols, A{0});
      });
    }
    // 2. the part of the sorted rows whose ids this table holds
    const auto first_at_least = [&](int64_t id) {
      const int32_t* end = a.order + a.dy.rows;
      return std::partition_point(a.order, end, [&](int32_t row) { return a.ids[row] < id; }) - a.order;
    };
    const int64_t low = first_at_least(a.first_id);
    const int64_t high = first_at_least(a.first_id + a.dtable.rows);
    // 3. runs of equal ids: a run belongs to the entry where it starts
    const int64_t column_blocks = (cols + kColumns - 1) / kColumns;
    const int64_t entry_blocks = (high - low + kEntries - 1) / kEntries;
    parallel_for(threads, column_blocks * entry_blocks, std::max<int64_t>(1, kCheapGrain / (kColumns * kEntries)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t item = begin; item < end; ++item) {
                     const int64_t c0 = (item % column_blocks) * kColumns;
                     const int64_t c1 = std::min(cols, c0 + kColumns);
                     const int64_t stop = std::min(high, low + (item / column_blocks + 1) * kEntries);
                     int64_t i = low + (item / column_blocks) * kEntries;
                     while (i > low && i < stop && a.ids[a.order[i]] == a.ids[a.order[i - 1]]) ++i;
                     while (i < stop) {
                       int64_t last = i + 1;
                       while (last < high && a.ids[a.order[last]] == a.ids[a.order[i]]) ++last;
                       add_run<T>(a, i, last, c0, c1);
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
namespace {
HWY_EXPORT(embedding_forward_impl);
HWY_EXPORT(embedding_backward_impl);
}  // namespace

void CpuBackend::embedding_forward(const EmbeddingForward& args, Stream&) {
  constexpr std::string_view kWhere = "embedding_forward";
  if (args.mode == GradMode::kSkip) return;
  check_view(kWhere, "table", args.table, args.table.rows, args.table.cols, args.table.dtype);
  check_view(kWhere, "out", args.out, args.out.rows, args.table.cols, args.table.dtype);
  ASHLAR_CHECK(args.ids != nullptr || args.out.rows == 0, "ids are absent");
  HWY_DYNAMIC_DISPATCH(embedding_forward_impl)(args, threads_);
}

void CpuBackend::embedding_backward(const EmbeddingBackward& args, Stream&) {
  constexpr std::string_view kWhere = "embedding_backward";
  if (args.mode == GradMode::kSkip) return;
  check_view(kWhere, "dy", args.dy, args.dy.rows, args.dtable.cols, args.dy.dtype);
  check_view(kWhere, "dtable", args.dtable, args.dtable.rows, args.dtable.cols, accumulate_dtype(args.dy.dtype));
  ASHLAR_CHECK((args.ids != nullptr && args.order != nullptr) || args.dy.rows == 0, "ids or order are absent");
  HWY_DYNAMIC_DISPATCH(embedding_backward_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
