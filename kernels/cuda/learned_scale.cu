// A matrix times one learned number, and the gradients of both.
// Memory-bound: forward moves 2 storage elements per element for 1 flop, backward moves 3 for 3 flops. Rows are split
// into vectors; a thread processes several. For ds, the gradient of the number, each block adds the sums
// of its threads, and a second kernel with one block adds the sums of the blocks.

#include "core/backend/learned_scale.h"

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// y = s * x.
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads)
    learned_scale_kernel(Pieces pieces, Rows<const T> x, const T* s, Rows<T> y) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  const A factor = widen(*s);
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A values[W];
    widen(load_some<W>(x[row] + c, count, pieces.vector), values);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) values[i] *= factor;
    store_some(y[row] + c, narrow<T>(values), count, pieces.vector);
  });
}

template <typename T>
struct BackwardRows {
  Rows<const T> dy, x;
  const T* s;
  Rows<T> dx;
  AccumulateOf<T>* partials;  ///< one number per block, or null
  bool writes = false, accumulate = false;
};

/// 1. adds to the thread's sum for ds, before dx may overwrite dy  2. writes dx  3. adds the sums of the block's
///    threads
template <typename T>
__global__ void __launch_bounds__(Pieces::kThreads) learned_scale_backward_kernel(Pieces pieces, BackwardRows<T> a) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  const A factor = widen(*a.s);
  A sum = 0;
  for_each_vector<W>(pieces, [&](int64_t row, int c, int count) {
    A values[W];
    widen(load_some<W>(a.dy[row] + c, count, pieces.vector), values);
    if (a.partials != nullptr) {
      const Vec<T, W> of = load_some<W>(a.x[row] + c, count, pieces.vector);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sum = i < count ? fused(values[i], static_cast<A>(of.wide(i)), sum) : sum;
    }
    if (!a.writes) return;
    Vec<T, W> old{};
    if (a.accumulate) old = load_some<W>(a.dx[row] + c, count, pieces.vector);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) values[i] = fused(values[i], factor, static_cast<A>(old.wide(i)));
    store_some(a.dx[row] + c, narrow<T>(values), count, pieces.vector);
  });
  if (a.partials == nullptr) return;
  RowGroup<A> group(Pieces::kThreads, shared);
  sum = group.reduce(sum, Add());
  if (group.rank == 0) a.partials[blockIdx.x] = sum;
}

/// Launched with one block. Each thread adds every 256th of the blocks' sums in double; then the sums of the threads
/// are added.
template <typename A>
__global__ void __launch_bounds__(Pieces::kThreads)
    learned_scale_add_kernel(const A* partials, int blocks, A* ds, bool accumulate) {
  ASHLAR_SHARED(double, shared, [RowGroup<double>::kShared]);
  RowGroup<double> group(Pieces::kThreads, shared);
  double sum = 0;
  for (int b = group.rank; b < blocks; b += Pieces::kThreads) sum += static_cast<double>(partials[b]);
  sum = group.reduce(sum, Add());
  if (group.rank == 0) *ds = static_cast<A>(accumulate ? static_cast<double>(*ds) + sum : sum);
}

}  // namespace

void CudaBackend::launch(const LearnedScale& args, Stream& stream) {
  if (args.x.size() == 0) return;
  with_storage("learned_scale", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    const Pieces pieces = split_pieces(false, kWidth<T>, args.x, args.y);
    run_kernel(stream, {.name = "learned_scale", .grid = pieces.blocks(), .block = Pieces::kThreads},
               learned_scale_kernel<T>, pieces, pieces.of<T>(args.x), static_cast<const T*>(args.s.data),
               pieces.of<T>(args.y));
  });
}

void CudaBackend::launch(const LearnedScaleBackward& args, Stream& stream) {
  with_storage("learned_scale_backward", args.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const bool sums = args.param_mode != GradMode::kSkip, writes = args.dx_mode != GradMode::kSkip;
    // A contiguous matrix is not treated as one long row here, so that the order of the sum depends only on the shape.
    const Pieces pieces = split_pieces(true, kWidth<T>, args.dy, args.x, args.dx);
    const unsigned blocks = args.x.size() == 0 ? 0 : pieces.blocks();
    auto* const partials = sums ? static_cast<A*>(scratch(stream, int64_t{blocks} * int64_t{sizeof(A)})) : nullptr;
    if (blocks > 0) {
      run_kernel(stream, {.name = "learned_scale_backward", .grid = blocks, .block = Pieces::kThreads},
                 learned_scale_backward_kernel<T>, pieces,
                 BackwardRows<T>{.dy = pieces.of<T>(args.dy),
                                 .x = pieces.of<T>(args.x),
                                 .s = static_cast<const T*>(args.s.data),
                                 .dx = pieces.of<T>(args.dx),
                                 .partials = partials,
                                 .writes = writes,
                                 .accumulate = args.dx_mode == GradMode::kAccumulate});
    }
    if (!sums) return;
    run_kernel(stream, {.name = "learned_scale_add", .grid = 1, .block = Pieces::kThreads}, learned_scale_add_kernel<A>,
               partials, static_cast<int>(blocks), static_cast<A*>(args.ds.data),
               args.param_mode == GradMode::kAccumulate);
  });
}

}  // namespace ashlar::ASHLAR_DEV
