// LayerNorm and RMSNorm of each row or each head of a row, in one kernel or in parts (row sums, statistics,
// application); gradients are in norm_backward.cu. Memory-bound: forward reads and writes one storage element per
// element (4 B in bf16) for about 8 flops. A group of threads keeps a row in registers between its steps, so that the
// row is read once, and loads its next row before it reduces the current one. A row that is too wide for registers is
// read again in each step. A block processes many rows and keeps the gains in registers; if rows have heads, a block
// processes one head.

#include "core/backend/norm.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/norm_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

// Forward.

/// A block has several groups of threads; a group processes one row at a time. A group
/// 0. loads the gains and its first row; then, for each of its rows, it loads its next row and
/// 1. computes the mean  2. computes rstd  3. normalizes and stores the row (norm_held_row).
template <typename T, bool kVector>
__global__ void __launch_bounds__(kMaxRowLanes, sizeof(T) == 2 ? 2 : 1)
    norm_forward_kernel(NormParams<T> a, Rows<const T> x, int lanes) {
  using A = AccumulateOf<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(lanes, shared);
  a.select_head(x, blockIdx.y);
  HeldGain<T, kVector> gain;
  HeldRow<T, kVector> beta, row, next;
  gain.load(a.gamma, a.unit_offset, a.cols, lanes, group.rank);
  beta.fill(T{});
  if (a.beta != nullptr) beta.load(a.beta, a.cols, lanes, group.rank);
  const int64_t step = int64_t{gridDim.x} * group.count;
  const int64_t first = int64_t{blockIdx.x} * group.count;
  next.fill(T{});
  if (first + group.index < a.rows) next.load(x[first + group.index], a.cols, lanes, group.rank);
  for (int64_t n = first; n < a.rows; n += step) {
    row = next;
    gain.gamma.keep_packed();
    beta.keep_packed();
    if (n + group.index + step < a.rows) next.load(x[n + group.index + step], a.cols, lanes, group.rank);
    norm_held_row(a, group, row, gain, beta, n + group.index);
  }
}

/// Variant for rows too wide for registers: each step reads the row again.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kMaxRowLanes) norm_forward_wide_kernel(NormParams<T> a, Rows<const T> x) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  const auto threads = static_cast<int>(blockDim.x);
  RowGroup<A> group(threads, shared);
  a.select_head(x, blockIdx.y);
  for (int64_t n = blockIdx.x; n < a.rows; n += gridDim.x) {
    const T* const row = x[n];
    // 1. mean
    A mean = 0;
    if (a.mean != nullptr) {
      A sum = 0;
      for (int c = group.rank * W; c < a.cols; c += threads * W) {
        const Vec<T, W> v = load_row<kVector, W>(row + c, a.cols - c);
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) sum += v.wide(i);
      }
      mean = group.reduce(sum, Add()) / static_cast<A>(a.cols);
    }
    // 2. rstd
    A squares = 0;
    for (int c = group.rank * W; c < a.cols; c += threads * W) {
      const Vec<T, W> v = load_row<kVector, W>(row + c, a.cols - c);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) {
        const A d = v.wide(i) - mean;
        if (i < a.cols - c) squares += d * d;
      }
    }
    const A rstd = A{1} / root(group.reduce(squares, Add()) / static_cast<A>(a.cols) + a.eps);
    if (group.rank == 0) {
      if (a.mean != nullptr) a.mean[n] = mean;
      a.rstd[n] = rstd;
    }
    // 3. normalize and store
    for (int c = group.rank * W; c < a.cols; c += threads * W) {
      const int count = a.cols - c;
      const Vec<T, W> v = load_row<kVector, W>(row + c, count);
      const Vec<T, W> gamma = a.gamma != nullptr ? load_row<kVector, W>(a.gamma + c, count) : Vec<T, W>{};
      const Vec<T, W> beta = a.beta != nullptr ? load_row<kVector, W>(a.beta + c, count) : Vec<T, W>{};
      const A offset = a.gamma == nullptr || a.unit_offset ? A{1} : A{0};
      A out[W];
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) {
        out[i] = fused((v.wide(i) - mean) * rstd, gamma.wide(i) + offset, beta.wide(i));
      }
      store_row<kVector>(a.y[n] + c, narrow<T>(out), count);
    }
  }
}

// Sums of each row.

/// A group of threads computes the sums of x and of (x - center)^2 of each row, in one read. A null output is skipped.
template <typename T, bool kVector>
__global__ void __launch_bounds__(kMaxRowLanes)
    norm_row_stats_kernel(Rows<const T> x, const AccumulateOf<T>* center, AccumulateOf<T>* sum,
                          AccumulateOf<T>* sum_squares, int64_t rows, int cols, int lanes) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(lanes, shared);
  for (int64_t first = int64_t{blockIdx.x} * group.count; first < rows; first += int64_t{gridDim.x} * group.count) {
    const int64_t n = first + group.index;
    A sums[2] = {0, 0};
    if (n < rows) {
      const A shift = center != nullptr ? center[n] : A{0};
      for (int c = group.rank * W; c < cols; c += lanes * W) {
        const Vec<T, W> v = load_row<kVector, W>(x[n] + c, cols - c);
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) {
          const A value = v.wide(i), d = value - shift;
          sums[0] += value;
          if (i < cols - c) sums[1] += d * d;
        }
      }
    }
    group.reduce(sums, Add());
    if (n >= rows || group.rank != 0) continue;
    if (sum != nullptr) sum[n] = sums[0];
    if (sum_squares != nullptr) sum_squares[n] = sums[1];
  }
}

/// Computes mean and rstd from the sums. The outputs may be the inputs.
template <typename A>
__global__ void __launch_bounds__(256)
    norm_statistics_kernel(const A* sum, const A* sum_squares, A* mean, A* rstd, int64_t rows, A inverse_total, A eps) {
  const int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (n >= rows) return;
  if (sum != nullptr) mean[n] = sum[n] * inverse_total;
  if (sum_squares != nullptr) rstd[n] = A{1} / root(sum_squares[n] * inverse_total + eps);
}

// Normalizes rows with a mean and rstd that are already computed. A thread has fixed columns and loops over the rows.

template <typename T, bool kVector>
__global__ void __launch_bounds__(ColumnTiles::kThreads)
    norm_apply_kernel(NormParams<T> a, Rows<const T> x, const AccumulateOf<T>* mean, const AccumulateOf<T>* rstd,
                      int lanes) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  const int groups = ColumnTiles::kThreads / lanes;
  const int rank = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int c = (static_cast<int>(blockIdx.x) * lanes + rank) * W, count = a.cols - c;
  if (count <= 0) return;
  const Vec<T, W> gamma = a.gamma != nullptr ? load_row<kVector, W>(a.gamma + c, count) : Vec<T, W>{};
  const Vec<T, W> beta = a.beta != nullptr ? load_row<kVector, W>(a.beta + c, count) : Vec<T, W>{};
  const A offset = a.gamma == nullptr || a.unit_offset ? A{1} : A{0};
  for (int64_t n = int64_t{blockIdx.y} * groups + group; n < a.rows; n += int64_t{gridDim.y} * groups) {
    const Vec<T, W> v = load_row<kVector, W>(x[n] + c, count);
    const A mean_n = mean != nullptr ? mean[n] : A{0}, rstd_n = rstd[n];
    A out[W];
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      out[i] = fused((v.wide(i) - mean_n) * rstd_n, gamma.wide(i) + offset, beta.wide(i));
    }
    store_row<kVector>(a.y[n] + c, narrow<T>(out), count);
  }
}

}  // namespace

void CudaBackend::launch(const NormForward& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("norm_forward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const NormParams<T> params = norm_params<T>(args);
    const auto heads = static_cast<unsigned>(args.heads);
    const int64_t most_blocks = div_up(4 * kMultiprocessors, args.heads);
    with_flag(norm_vectors(params.cols, kWidth<T>, args.x, args.y, args.gamma, args.beta), [&](auto vector) {
      if (params.cols > kMaxHeldColumns<T>) {
        run_kernel(stream,
                   {.name = "norm_forward_wide",
                    .grid = dim3(num_blocks(args.x.rows, most_blocks), heads, 1),
                    .block = static_cast<unsigned>(kMaxRowLanes)},
                   norm_forward_wide_kernel<T, vector.value>, params, rows_of<T>(args.x));
        return;
      }
      const RowLayout layout = norm_layout<T>(params.cols);
      run_kernel(stream,
                 {.name = "norm_forward",
                  .grid = dim3(layout.blocks(args.x.rows, most_blocks), heads, 1),
                  .block = static_cast<unsigned>(layout.threads())},
                 norm_forward_kernel<T, vector.value>, params, rows_of<T>(args.x), layout.lanes);
    });
  });
}

void CudaBackend::launch(const NormRowStats& args, Stream& stream) {
  if (args.x.rows == 0) return;
  with_storage("norm_row_stats", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const RowLayout layout = sums_layout<T>(args.x.cols);
    with_flag(norm_vectors(args.x.cols, kWidth<T>, args.x), [&](auto vector) {
      run_kernel(stream,
                 {.name = "norm_row_stats",
                  .grid = layout.blocks(args.x.rows, 8 * kMultiprocessors),
                  .block = static_cast<unsigned>(layout.threads())},
                 norm_row_stats_kernel<T, vector.value>, rows_of<T>(args.x), static_cast<const A*>(args.center.data),
                 static_cast<A*>(args.sum.data), static_cast<A*>(args.sum_squares.data), args.x.rows,
                 static_cast<int>(args.x.cols), layout.lanes);
    });
  });
}

void CudaBackend::launch(const NormStatistics& args, Stream& stream) {
  const ConstView& first = args.sum ? args.sum : args.sum_squares;
  if (first.size() == 0) return;
  with_storage("norm_statistics", first.dtype, [&](auto t) {
    using A = AccumulateOf<decltype(t)>;
    run_kernel(
        stream, {.name = "norm_statistics", .grid = static_cast<unsigned>(div_up(first.size(), 256)), .block = 256},
        norm_statistics_kernel<A>, static_cast<const A*>(args.sum.data), static_cast<const A*>(args.sum_squares.data),
        static_cast<A*>(args.mean.data), static_cast<A*>(args.rstd.data), first.size(),
        A{1} / static_cast<A>(args.c_total), static_cast<A>(args.eps));
  });
}

void CudaBackend::launch(const NormApply& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("norm_apply", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const NormParams<T> params{.gamma = static_cast<const T*>(args.gamma.data),
                               .beta = static_cast<const T*>(args.beta.data),
                               .y = rows_of<T>(args.y),
                               .mean = nullptr,
                               .rstd = nullptr,
                               .eps = 0,
                               .unit_offset = args.unit_offset,
                               .rows = args.x.rows,
                               .cols = static_cast<int>(args.x.cols),
                               .gain_step = 0};
    const ColumnTiles tiles = column_tiles(args.x.rows, args.x.cols, kWidth<T>);
    with_flag(norm_vectors(args.x.cols, kWidth<T>, args.x, args.y, args.gamma, args.beta), [&](auto vector) {
      run_kernel(stream, {.name = "norm_apply", .grid = tiles.grid, .block = ColumnTiles::kThreads},
                 norm_apply_kernel<T, vector.value>, params, rows_of<T>(args.x), static_cast<const A*>(args.mean.data),
                 static_cast<const A*>(args.rstd.data), tiles.lanes);
    });
  });
}

}  // namespace ashlar::ASHLAR_DEV
