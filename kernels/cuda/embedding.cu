// Table lookup and its gradient.
// Memory-bound: forward moves 2 storage elements per element; backward reads dy once, and reads and writes the
// gradients of the table rows that the ids name. Backward gets an order that sorts the ids stably, so every table row
// has one writer, and rows of dy are added in ascending order.

#include "core/backend/embedding.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// out[n] (+)= scale * table[ids[n] - first_id], or 0 if the table does not have the id. A group of threads processes
/// each row.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    embedding_forward_kernel(Pieces pieces, const int32_t* ids, Rows<const T> table, Rows<T> out, int64_t first_id,
                             int64_t table_rows, AccumulateOf<T> scale, bool accumulate) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    const int64_t id = ids[row] - first_id;
    Vec<T, W> v{};
    if (id >= 0 && id < table_rows) {
      v = load_some<W>(table[id] + c, count, pieces.vector);
    } else if (accumulate) {
      return;
    }
    if (accumulate || scale != A{1}) {
      Vec<T, W> old{};
      if (accumulate) old = load_some<W>(out[row] + c, count, pieces.vector);
      A sum[W];
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sum[i] = fused(scale, static_cast<A>(v.wide(i)), static_cast<A>(old.wide(i)));
      v = narrow<T>(sum);
    }
    store_some(out[row] + c, v, count, pieces.vector);
  });
}

/// Number of entries of `order` that a thread loads together.
constexpr int kAhead = 4;

/// Here a row of `pieces` is an entry of `order`, and a run is a sequence of entries with the same id. A thread group
/// 1. skips an entry unless it is the first of a run and its id is in the table
/// 2. adds the run's rows of dy in order, and loads kAhead rows together
/// 3. adds the sum to the row of the table.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads, 4)
    embedding_backward_kernel(Pieces pieces, const int32_t* ids, const int32_t* order, Rows<const T> dy,
                              Rows<AccumulateOf<T>> dtable, int64_t first_id, int64_t table_rows,
                              AccumulateOf<T> scale) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T, A>;
  for_each_vector<W>(pieces, [&](int64_t entry, int c, int count) {
    // 1. skip the entry unless it is the first of a run
    const int32_t id = ids[order[entry]];
    if (entry > 0 && ids[order[entry - 1]] == id) return;
    const int64_t row = id - first_id;
    if (row < 0 || row >= table_rows) return;
    // 2. add the rows of the run
    A sum[W] = {};
    for (int64_t first = entry; first < pieces.rows; first += kAhead) {
      Vec<T, W> rows[kAhead];
      int in_run = 0;
      ASHLAR_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        rows[k] = Vec<T, W>{};
        const int64_t at = min(first + k, pieces.rows - 1);
        const int32_t from = order[at];
        if (in_run < k || first + k != at || ids[from] != id) continue;
        rows[k] = load_some<W>(dy[from] + c, count, pieces.vector);
        ++in_run;
      }
      ASHLAR_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) sum[i] += rows[k].wide(i);  // rows after the run are zero
      }
      if (in_run < kAhead) break;
    }
    // 3. add the sum to the table
    A* const out = dtable[row] + c;
    const Vec<A, W> old = load_some<W>(out, count, pieces.vector);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) sum[i] = fused(scale, sum[i], old.wide(i));
    store_some(out, narrow<A>(sum), count, pieces.vector);
  });
}

}  // namespace

void CudaBackend::launch(const EmbeddingForward& args, Stream& stream) {
  if (args.out.size() == 0) return;
  with_storage("embedding_forward", args.table.dtype, [&](auto t) {
    using T = decltype(t);
    Pieces pieces = split_pieces(true, kWidth<T>, args.out);
    pieces.vector = pieces.vector && rows_aligned(args.table, kWidth<T>);
    run_kernel(stream, {.name = "embedding_forward", .grid = pieces.blocks(), .block = Pieces::kThreads},
               embedding_forward_kernel<T>, pieces, static_cast<const int32_t*>(args.ids.data), rows_of<T>(args.table),
               rows_of<T>(args.out), args.first_id, args.table.rows, static_cast<AccumulateOf<T>>(args.scale),
               args.mode == GradMode::kAccumulate);
  });
}

void CudaBackend::launch(const EmbeddingBackward& args, Stream& stream) {
  // If the gradient is overwritten, all its rows are first set to zero.
  if (args.mode == GradMode::kOverwrite) CudaBackend::launch(Fill{.dst = args.dtable, .value = 0}, stream);
  if (args.dy.size() == 0) return;
  with_storage("embedding_backward", args.dy.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    Pieces pieces = split_pieces(true, kWidth<T, A>, args.dy);
    pieces.vector = pieces.vector && rows_aligned(args.dtable, kWidth<T, A>);
    run_kernel(stream, {.name = "embedding_backward", .grid = pieces.blocks(), .block = Pieces::kThreads},
               embedding_backward_kernel<T>, pieces, static_cast<const int32_t*>(args.ids.data),
               static_cast<const int32_t*>(args.order.data), rows_of<T>(args.dy), rows_of<A>(args.dtable),
               args.first_id, args.dtable.rows, static_cast<A>(args.scale));
  });
}

}  // namespace ashlar::ASHLAR_DEV
