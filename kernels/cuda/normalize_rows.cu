// Scales rows to length one, and computes the gradient.
// Memory-bound: forward reads a row twice (the second time mostly from cache) and writes it, backward reads two rows
// twice and writes one. A block processes one row at a time.

#include "core/backend/normalize_rows.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// For each row:  1. computes its length  2. writes the scaled row
template <typename T>
__global__ void __launch_bounds__(kThreads)
    normalize_rows_kernel(Rows<const T> w, Rows<T> y, AccumulateOf<T>* inverse, int64_t rows, int cols) {
  using A = AccumulateOf<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(kThreads, shared);
  for (int64_t v = blockIdx.x; v < rows; v += gridDim.x) {
    A squares = 0;
    for (int c = group.rank; c < cols; c += kThreads) {
      const A x = widen(w[v][c]);
      squares = fused(x, x, squares);
    }
    squares = group.reduce(squares, Add());
    const A length = max(sqrt(squares), static_cast<A>(kShortestRow));
    const A factor = A{1} / length;
    if (group.rank == 0) inverse[v] = factor;
    for (int c = group.rank; c < cols; c += kThreads) y[v][c] = narrow<T>(widen(w[v][c]) * factor);
  }
}

/// For each row:  1. computes the dot product w . dy, and from it `along`, the multiple of w that is subtracted from dy
/// 2. writes dw = (dy - along * w) / length, or adds it to dw
template <typename T>
__global__ void __launch_bounds__(kThreads)
    normalize_rows_backward_kernel(Rows<const AccumulateOf<T>> dy, Rows<const T> w, const AccumulateOf<T>* inverse,
                                   Rows<AccumulateOf<T>> dw, int64_t rows, int cols, bool accumulate) {
  using A = AccumulateOf<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(kThreads, shared);
  for (int64_t v = blockIdx.x; v < rows; v += gridDim.x) {
    A product = 0;
    for (int c = group.rank; c < cols; c += kThreads) product = fused(widen(w[v][c]), dy[v][c], product);
    product = group.reduce(product, Add());
    const A factor = inverse[v];
    const bool too_short = factor >= static_cast<A>(1 / kShortestRow);
    const A along = too_short ? A{0} : product * factor * factor;
    for (int c = group.rank; c < cols; c += kThreads) {
      const A grad = factor * fused(-widen(w[v][c]), along, dy[v][c]);
      dw[v][c] = accumulate ? dw[v][c] + grad : grad;
    }
  }
}

}  // namespace

void CudaBackend::launch(const NormalizeRows& args, Stream& stream) {
  if (args.w.size() == 0) return;
  with_storage("normalize_rows", args.w.dtype, [&](auto t) {
    using T = decltype(t);
    run_kernel(stream,
               {.name = "normalize_rows", .grid = num_blocks(args.w.rows, 8 * kMultiprocessors), .block = kThreads},
               normalize_rows_kernel<T>, rows_of<T>(args.w), rows_of<T>(args.y),
               static_cast<AccumulateOf<T>*>(args.inverse.data), args.w.rows, static_cast<int>(args.w.cols));
  });
}

void CudaBackend::launch(const NormalizeRowsBackward& args, Stream& stream) {
  if (args.w.size() == 0) return;
  with_storage("normalize_rows_backward", args.w.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    run_kernel(
        stream,
        {.name = "normalize_rows_backward", .grid = num_blocks(args.w.rows, 8 * kMultiprocessors), .block = kThreads},
        normalize_rows_backward_kernel<T>, rows_of<A>(args.dy), rows_of<T>(args.w),
        static_cast<const A*>(args.inverse.data), rows_of<A>(args.dw), args.w.rows, static_cast<int>(args.w.cols),
        args.mode == GradMode::kAccumulate);
  });
}

}  // namespace ashlar::ASHLAR_DEV
