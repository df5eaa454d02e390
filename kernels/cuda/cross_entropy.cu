// Cross-entropy over the vocabulary or a slice of it: statistics of rows, the loss, the gradient of logits.
// Memory-bound: statistics read the logits once, with a running maximum and sum of exponentials; the gradient reads
// them once more and writes in place: 6 B and two exponentials per element in bf16. A block processes one row at a
// time. Where a row can be kept between the two, cross_entropy_kept.cu reads it once.

#include "core/backend/cross_entropy.h"

#include <type_traits>

#include "kernels/cuda/cross_entropy_row.h"
#include "kernels/cuda/cuda_backend.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int kReduceThreads = 512;

/// A block processes one row at a time.
template <typename T, bool kVector, class Z>
__global__ void __launch_bounds__(kMaxLossThreads, sizeof(T) == 8 ? 1 : 2)
    loss_row_stats_kernel(Z z, Rows<const T> logits, LossSlice slice, int64_t rows, AccumulateOf<T>* row_max,
                          AccumulateOf<T>* row_sum, AccumulateOf<T>* target_logit) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  const auto threads = static_cast<int>(blockDim.x);
  RowGroup<A> group(threads, shared);
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const T* const row = logits[n];
    RunningSum<T> mine;
    for (int first = group.rank * W; first < slice.valid_cols; first += kLossAhead * threads * W) {
      Vec<T, W> vec[kLossAhead];
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) {
        const int c = first + k * threads * W;
        vec[k] = load_row<kVector, W>(row + c, c < slice.valid_cols ? slice.cols - c : 0);
      }
      add_vectors(mine, z, vec, slice.valid_cols - first, threads * W);
    }
    const RunningSum<T> total = row_total(mine, group);
    if (group.rank != 0) continue;
    const int target = slice.target_column(n);
    row_max[n] = total.max;
    row_sum[n] = total.sum;
    target_logit[n] = target < 0 ? A{0} : z.z(static_cast<A>(widen(row[target])));
  }
}

/// One thread per (row, masked id): sets logits[row][id] to -inf if the id is in this rank's vocabulary shard.
template <typename T>
__global__ void loss_mask_kernel(Rows<T> logits, const int32_t* ids, int64_t vocab_begin, int64_t rows, int64_t count,
                                 int64_t cols) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= rows * count) return;
  const int64_t column = ids[i % count] - vocab_begin;
  if (column >= 0 && column < cols) logits[i / count][column] = narrow<T>(-infinity<AccumulateOf<T>>());
}

/// Counts the logits of each row that are equal to the row's maximum. A block processes one row at a time.
template <typename T, class Z>
__global__ void __launch_bounds__(kMaxLossThreads)
    loss_max_count_kernel(Z z, Rows<const T> logits, LossSlice slice, int64_t rows, const AccumulateOf<T>* row_max,
                          AccumulateOf<T>* max_count) {
  using A = AccumulateOf<T>;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  RowGroup<A> group(static_cast<int>(blockDim.x), shared);
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const A max = row_max[n];
    A count = 0;
    for (int c = group.rank; c < slice.valid_cols; c += group.lanes)
      count += z.z(static_cast<A>(widen(logits[n][c]))) >= max ? A{1} : A{0};
    count = group.reduce(count, Add());
    if (group.rank == 0) max_count[n] = count;
  }
}

template <typename A>
__global__ void loss_rescale_kernel(const A* local_max, const A* global_max, A* row_sum, int64_t rows) {
  const int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  // Without a finite logit in this slice the sum is 0 or NaN, and stays as it is.
  if (n >= rows || local_max[n] == -infinity<A>()) return;
  row_sum[n] =
      static_cast<A>(row_sum[n] * exponential(static_cast<double>(local_max[n]) - static_cast<double>(global_max[n])));
}

/// Launched with one block. Each thread sums every kReduceThreads-th row; the sums of the threads are added in a fixed
/// order, and one thread adds the results to `stats`.
template <typename A>
__global__ void __launch_bounds__(kReduceThreads)
    loss_reduce_kernel(const A* row_max, const A* row_sum, const A* target_logit, const int32_t* targets, int64_t rows,
                       double z_coef, ZKind z_kind, LossStats* stats) {
  ASHLAR_SHARED(double, shared, [RowGroup<double>::kShared]);
  RowGroup<double> group(kReduceThreads, shared);
  double losses[2] = {0, 0};             // sums of loss and z_loss
  double counts[2] = {0, 0};             // sum of log_z, number of valid rows
  double highest[2] = {-1e300, -1e300};  // maximum of log_z, maximum of the logits
  for (int64_t n = threadIdx.x; n < rows; n += kReduceThreads) {
    if (targets[n] < 0) continue;
    const double max = row_max[n];
    const double lse = max + logarithm(static_cast<double>(row_sum[n]));
    losses[0] += lse - target_logit[n];
    const double squared = z_kind == ZKind::kLse ? lse : max;
    losses[1] += z_coef * squared * squared;
    counts[0] += lse;
    counts[1] += 1;
    highest[0] = Max()(highest[0], lse);
    highest[1] = Max()(highest[1], max);
  }
  group.reduce(losses, Add());
  group.reduce(counts, Add());
  group.reduce(highest, Max());
  if (threadIdx.x != 0) return;
  stats->loss += losses[0];
  stats->z_loss += losses[1];
  stats->log_z += counts[0];
  stats->valid += static_cast<int64_t>(counts[1]);
  stats->max_log_z = Max()(stats->max_log_z, highest[0]);
  stats->max_logit = Max()(stats->max_logit, highest[1]);
}

/// Minimum number of blocks per multiprocessor for PlainGrad<float>. With four blocks, a thread has 32 registers. That
/// is enough on Hopper (sm_90); on other architectures the kernel would spill registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int kMostGradBlocks = 4;
#else
constexpr int kMostGradBlocks = 1;
#endif
template <class Grad>
constexpr int kGradBlocks = std::is_same_v<Grad, PlainGrad<float>> ? kMostGradBlocks : 1;

/// A block processes one row at a time: one thread computes the row's factors, then all threads compute the row; each
/// vector is read and then written by the same thread.
template <typename T, typename U, bool kVector, class Grad>
__global__ void __launch_bounds__(kMaxLossThreads, kGradBlocks<Grad>)
    loss_backward_kernel(Grad grad, Rows<const T> logits, Rows<U> dlogits, LossSlice slice, int64_t rows,
                         const AccumulateOf<T>* row_max, const AccumulateOf<T>* row_sum, double z_coef,
                         const StepScalars* scalars) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T, U>;
  ASHLAR_SHARED(RowFactors<A>, factors, [2]);
  const auto threads = static_cast<int>(blockDim.x), rank = static_cast<int>(threadIdx.x);
  const double unit = slice.logit_scale * scalars->inv_valid_tokens;
  int turn = 0;
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    U* const out = dlogits[n];
    const T* const row = logits[n];
    const bool counts = slice.targets[n] >= 0;
    const int target = counts ? slice.target_column(n) : -1;
    RowFactors<A> f{};
    if (counts) {
      // Two slots alternate: before a slot is rewritten, all threads have passed a barrier after reading it.
      RowFactors<A>& slot = factors[turn];
      turn = 1 - turn;
      if (rank == 0) slot = row_factors(grad, slice, n, row, row_max[n], row_sum[n], unit, z_coef);
      __syncthreads();
      f = slot;
    }
    const A share = counts ? grad.share(n, unit * z_coef, f.max) : A{0};
    for (int c = rank * W; c < slice.cols; c += threads * W) {
      const int count = slice.cols - c;
      Vec<U, W> values{};
      if (counts && c < slice.valid_cols) {
        values = gradients<U>(grad, load_row<kVector, W>(row + c, count), c, slice.valid_cols, target, f, share);
      }
      store_row<kVector>(out + c, values, count);
    }
  }
}

}  // namespace

void CudaBackend::launch(const LossRowStats& args, Stream& stream) {
  if (args.logits.rows == 0) return;
  with_storage("loss_row_stats", args.logits.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    const bool vectors = args.logits.cols % kWidth<T> == 0 && rows_aligned(args.logits, kWidth<T>);
    with_flag(vectors, [&](auto vector) {
      with_z<A>(args.shape, [&](const auto& z) {
        run_kernel(stream,
                   {.name = "loss_row_stats",
                    .grid = num_blocks(args.logits.rows, 64 * kMultiprocessors),
                    .block = loss_threads(args.shape.valid_cols, kWidth<T>)},
                   loss_row_stats_kernel<T, vector.value, std::decay_t<decltype(z)>>, z, rows_of<T>(args.logits),
                   slice_of(args.shape, args.logits), args.logits.rows, static_cast<A*>(args.row_max.data),
                   static_cast<A*>(args.row_sum.data), static_cast<A*>(args.target_logit.data));
      });
    });
  });
}

void CudaBackend::launch(const LossMask& args, Stream& stream) {
  const int64_t entries = args.logits.rows * args.ids.size();
  if (entries == 0) return;
  with_storage("loss_mask", args.logits.dtype, [&](auto t) {
    using T = decltype(t);
    run_kernel(stream, {.name = "loss_mask", .grid = static_cast<unsigned>(div_up(entries, 256)), .block = 256U},
               loss_mask_kernel<T>, rows_of<T>(args.logits), static_cast<const int32_t*>(args.ids.data),
               args.vocab_begin, args.logits.rows, args.ids.size(), args.logits.cols);
  });
}

void CudaBackend::launch(const LossMaxCount& args, Stream& stream) {
  if (args.logits.rows == 0) return;
  with_storage("loss_max_count", args.logits.dtype, [&](auto t) {
    using T = decltype(t);
    using A = AccumulateOf<T>;
    with_z<A>(args.shape, [&](const auto& z) {
      run_kernel(stream,
                 {.name = "loss_max_count",
                  .grid = num_blocks(args.logits.rows, 64 * kMultiprocessors),
                  .block = loss_threads(args.shape.valid_cols, 1)},
                 loss_max_count_kernel<T, std::decay_t<decltype(z)>>, z, rows_of<T>(args.logits),
                 slice_of(args.shape, args.logits), args.logits.rows, static_cast<const A*>(args.row_max.data),
                 static_cast<A*>(args.max_count.data));
    });
  });
}

void CudaBackend::launch(const LossRescale& args, Stream& stream) {
  const int64_t rows = args.row_sum.size();
  if (rows == 0) return;
  with_accumulate(args.row_sum.dtype, [&](auto a) {
    using A = decltype(a);
    run_kernel(stream, {.name = "loss_rescale", .grid = static_cast<unsigned>(div_up(rows, 256)), .block = 256U},
               loss_rescale_kernel<A>, static_cast<const A*>(args.local_max.data),
               static_cast<const A*>(args.global_max.data), static_cast<A*>(args.row_sum.data), rows);
  });
}

void CudaBackend::launch(const LossReduce& args, Stream& stream) {
  const int64_t rows = args.row_max.size();
  if (rows == 0) return;
  with_accumulate(args.row_max.dtype, [&](auto a) {
    using A = decltype(a);
    run_kernel(stream, {.name = "loss_reduce", .grid = 1U, .block = static_cast<unsigned>(kReduceThreads)},
               loss_reduce_kernel<A>, static_cast<const A*>(args.row_max.data),
               static_cast<const A*>(args.row_sum.data), static_cast<const A*>(args.target_logit.data),
               static_cast<const int32_t*>(args.shape.targets.data), rows, args.z_coef, args.z_kind,
               static_cast<LossStats*>(args.stats.data));
  });
}

void CudaBackend::launch(const LossBackward& args, Stream& stream) {
  if (args.logits.size() == 0) return;
  with_storage("loss_backward", args.logits.dtype, [&](auto t) {
    with_storage("loss_backward", args.dlogits.dtype, [&](auto u) {
      using T = decltype(t);
      using U = decltype(u);
      using A = AccumulateOf<T>;
      if constexpr (std::is_same_v<A, AccumulateOf<U>>) {
        constexpr int64_t kW = kWidth<T, U>;
        const bool vectors = args.logits.cols % kW == 0 && rows_aligned_for(kW, args.logits, args.dlogits);
        const auto run = [&](const auto& grad) {
          with_flag(vectors, [&](auto vector) {
            run_kernel(stream,
                       {.name = "loss_backward",
                        .grid = num_blocks(args.logits.rows, 64 * kMultiprocessors),
                        .block = loss_threads(args.logits.cols, kW)},
                       loss_backward_kernel<T, U, vector.value, std::decay_t<decltype(grad)>>, grad,
                       rows_of<T>(args.logits), rows_of<U>(args.dlogits), slice_of(args.shape, args.logits),
                       args.logits.rows, static_cast<const A*>(args.row_max.data),
                       static_cast<const A*>(args.row_sum.data), args.z_coef,
                       static_cast<const StepScalars*>(args.scalars.data));
          });
        };
        return args.shape.softcap == 0 && !args.max_count ? run(PlainGrad<A>(args)) : run(CappedGrad<A>(args));
      }
    });
  });
}

}  // namespace ashlar::ASHLAR_DEV
