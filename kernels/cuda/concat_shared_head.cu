// Builds rows of heads: each head gets the columns that all heads have in common ("shared"), then the columns of this
// head ("own"). Also computes the gradients of the shared and the own columns.
// Memory-bound. With H heads, S shared columns and P own columns per head, forward in bf16 reads 2 (S + H P) B per row
// and writes 2 H (S + P) B. Backward does the reverse, with an addition for each of the H S shared columns. A group of
// threads processes a row, first its shared columns: each shared column is read once, and one thread computes each sum.

#include "core/backend/concat_shared_head.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

template <typename T>
struct ConcatSharedHeadParams {
  Rows<const T> shared, own;
  Rows<T> y;
  int64_t rows;
  int heads, shared_cols, own_cols;
  int lanes;  ///< number of threads that process a row
};

template <typename T>
struct ConcatSharedHeadBackwardParams {
  Rows<const T> dy;
  Rows<T> dshared, down;
  int64_t rows;
  int heads, shared_cols, own_cols;
  int lanes;
  bool accumulate;
};

/// Calls f(row, rank) for each row that this thread's group of `lanes` threads processes; `rank` is the thread's index
/// in its group.
template <typename F>
__device__ __forceinline__ void for_each_row(int64_t rows, int lanes, const F& f) {
  const int groups = kThreads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, rank = static_cast<int>(threadIdx.x) % lanes;
  if (group >= groups) return;  // `lanes` need not divide the number of threads
  for (int64_t n = int64_t{blockIdx.x} * groups + group; n < rows; n += int64_t{gridDim.x} * groups) f(n, rank);
}

/// 1. copies the shared columns to every head  2. copies each head's own columns
template <typename T, bool kVector>
__global__ void __launch_bounds__(kThreads, 4) concat_shared_head_kernel(ConcatSharedHeadParams<T> a) {
  constexpr int W = kVector ? kWidth<T> : 1;
  const int width = a.shared_cols + a.own_cols;
  for_each_row(a.rows, a.lanes, [&](int64_t n, int rank) {
    T* const y = a.y[n];
    // 1. copy the shared columns to every head
    for (int c = rank * W; c < a.shared_cols; c += a.lanes * W) {
      const Vec<T, W> v = load<W>(a.shared[n] + c);
      for (int h = 0; h < a.heads; ++h) store_row<kVector>(y + h * width + c, v, W);
    }
    // 2. copy the own columns of each head
    const T* const own = a.own[n];
    for (int c = rank * W; c < a.heads * a.own_cols; c += a.lanes * W) {
      const int h = c / a.own_cols;
      store_row<kVector>(y + h * width + a.shared_cols + (c - h * a.own_cols), load<W>(own + c), W);
    }
  });
}

/// 1. adds the gradients of the shared columns over the heads, in order
/// 2. copies the gradients of each head's own columns
template <typename T, bool kVector>
__global__ void __launch_bounds__(kThreads, 4) concat_shared_head_backward_kernel(ConcatSharedHeadBackwardParams<T> a) {
  using A = AccumulateOf<T>;
  constexpr int W = kVector ? kWidth<T> : 1;
  const int width = a.shared_cols + a.own_cols;
  const auto put = [&](T* to, A(&values)[W]) {
    if (a.accumulate) {
      const Vec<T, W> old = load<W>(to);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) values[i] += old.wide(i);
    }
    store_row<kVector>(to, narrow<T>(values), W);
  };
  for_each_row(a.rows, a.lanes, [&](int64_t n, int rank) {
    const T* const dy = a.dy[n];
    // 1. add the gradients of shared columns over the heads
    for (int c = rank * W; c < a.shared_cols; c += a.lanes * W) {
      A sum[W] = {};
      for (int h = 0; h < a.heads; ++h) {
        const Vec<T, W> v = load<W>(dy + h * width + c);
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) sum[i] += v.wide(i);
      }
      put(a.dshared[n] + c, sum);
    }
    // 2. copy the gradients of the own columns of each head
    for (int c = rank * W; c < a.heads * a.own_cols; c += a.lanes * W) {
      const int h = c / a.own_cols;
      A values[W];
      widen(load<W>(dy + h * width + a.shared_cols + (c - h * a.own_cols)), values);
      put(a.down[n] + c, values);
    }
  });
}

/// Returns the number of threads per row: a power of two up to a warp, whole warps beyond, at most a block.
int row_lanes(int64_t cols, int64_t width) { return row_layout(div_up(cols, width), 1, kThreads, 1).lanes; }

}  // namespace

void CudaBackend::launch(const ConcatSharedHead& args, Stream& stream) {
  if (args.y.size() == 0) return;
  with_storage("concat_shared_head", args.y.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t own = args.own.cols / args.heads;
    with_flag(args.shared.cols % kWidth<T> == 0 && own % kWidth<T> == 0 &&
                  rows_aligned_for(kWidth<T>, args.shared, args.own, args.y),
              [&](auto vector) {
                const int lanes = row_lanes(args.y.cols, vector.value ? kWidth<T> : 1);
                run_kernel(stream,
                           {.name = "concat_shared_head",
                            .grid = num_blocks(div_up(args.y.rows, kThreads / lanes), 16 * kMultiprocessors),
                            .block = kThreads},
                           concat_shared_head_kernel<T, vector.value>,
                           ConcatSharedHeadParams<T>{.shared = rows_of<T>(args.shared),
                                                     .own = rows_of<T>(args.own),
                                                     .y = rows_of<T>(args.y),
                                                     .rows = args.y.rows,
                                                     .heads = static_cast<int>(args.heads),
                                                     .shared_cols = static_cast<int>(args.shared.cols),
                                                     .own_cols = static_cast<int>(own),
                                                     .lanes = lanes});
              });
  });
}

void CudaBackend::launch(const ConcatSharedHeadBackward& args, Stream& stream) {
  if (args.dy.size() == 0) return;
  with_storage("concat_shared_head_backward", args.dy.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t own = args.down.cols / args.heads;
    with_flag(args.dshared.cols % kWidth<T> == 0 && own % kWidth<T> == 0 &&
                  rows_aligned_for(kWidth<T>, args.dy, args.dshared, args.down),
              [&](auto vector) {
                const int lanes = row_lanes(args.dy.cols, vector.value ? kWidth<T> : 1);
                run_kernel(stream,
                           {.name = "concat_shared_head_backward",
                            .grid = num_blocks(div_up(args.dy.rows, kThreads / lanes), 16 * kMultiprocessors),
                            .block = kThreads},
                           concat_shared_head_backward_kernel<T, vector.value>,
                           ConcatSharedHeadBackwardParams<T>{.dy = rows_of<T>(args.dy),
                                                             .dshared = rows_of<T>(args.dshared),
                                                             .down = rows_of<T>(args.down),
                                                             .rows = args.dy.rows,
                                                             .heads = static_cast<int>(args.heads),
                                                             .shared_cols = static_cast<int>(args.dshared.cols),
                                                             .own_cols = static_cast<int>(own),
                                                             .lanes = lanes,
                                                             .accumulate = args.mode == GradMode::kAccumulate});
              });
  });
}

}  // namespace ashlar::ASHLAR_DEV
