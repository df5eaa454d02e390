// Cross-entropy over the vocabulary or a slice of it: statistics of rows, the loss, the gradient of logits.
// Memory-bound: statistics read the logits once, with a running maximum and sum of exponentials; the gradient reads
// them once more and writes in place: 6 B and two exponentials per element in bf16. A block processes one row at a
// time.

#include "core/backend/cross_entropy.h"

#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kReduceThreads = 512;

/// LossShape in the form of a kernel argument.
struct Slice {
  const int32_t* targets;
  int64_t vocab_begin;
  int valid_cols, cols;
  double logit_scale;

  /// Returns the column of row n's target, or -1 if the target is not in this slice of the vocabulary.
  __device__ __forceinline__ int target_column(int64_t n) const {
    const int64_t target = targets[n], column = target - vocab_begin;
    return target >= 0 && column >= 0 && column < valid_cols ? static_cast<int>(column) : -1;
  }
};

/// Computes z, the scaled logit.
template <typename A>
struct Scaled {
  explicit Scaled(const LossShape& shape) : scale(static_cast<A>(shape.logit_scale)) {}
  __device__ __forceinline__ A z(A logit) const { return logit * scale; }
  /// Returns z - shift, rounded once.
  __device__ __forceinline__ A below(A logit, A shift) const { return fused(logit, scale, -shift); }

  A scale;
};

/// Computes z, the scaled logit after the soft cap. z of -inf is -inf.
template <typename A>
struct Capped {
  explicit Capped(const LossShape& shape)
      : cap(static_cast<A>(shape.softcap)), inverse(static_cast<A>(shape.logit_scale / shape.softcap)) {}
  __device__ __forceinline__ A z(A logit) const {
    return logit == -infinity<A>() ? logit : cap * hyperbolic_tangent<false>(logit * inverse);
  }
  __device__ __forceinline__ A below(A logit, A shift) const { return z(logit) - shift; }

  A cap, inverse;
};

/// Calls f with a Scaled if the shape has no soft cap, otherwise with a Capped.
template <typename A, typename F>
void with_z(const LossShape& shape, const F& f) {
  return shape.softcap == 0 ? f(Scaled<A>(shape)) : f(Capped<A>(shape));
}

/// Returns exp(x) for x <= 0. The result is approximate if the type T of the logits is bf16.
template <typename T, typename A>
__device__ __forceinline__ A exp_of(A x) {
  return exponential<sizeof(T) == 2>(x);
}

/// Running statistics of some columns: the maximum of z and the sum of exp(z - max). max may be -inf.
template <typename T>
struct RunningSum {
  using A = AccumulateOf<T>;
  A max = -infinity<A>(), sum = 0;

  /// Returns the number to subtract from z before exp: the maximum, or 0 if it is -inf, since -inf - -inf would be NaN.
  __device__ __forceinline__ static A shift_of(A max) { return max == -infinity<A>() ? A{0} : max; }
  __device__ __forceinline__ void rescale(A new_max) {
    sum *= exp_of<T>(max - shift_of(new_max));
    max = new_max;
  }
};

/// A block processes one row at a time. For each group of kAhead vectors, a thread
/// 1. updates its maximum and rescales its sum to the new maximum  2. adds the exponentials to its sum.
/// At the end of a row the block  3. finds the row's maximum, to which each thread rescales its sum  4. adds the sums.
template <typename T, bool kVector, class Z>
__global__ void __launch_bounds__(kMaxThreads, sizeof(T) == 8 ? 1 : 2)
    loss_row_stats_kernel(Z z, Rows<const T> logits, Slice slice, int64_t rows, AccumulateOf<T>* row_max,
                          AccumulateOf<T>* row_sum, AccumulateOf<T>* target_logit) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  constexpr int kAhead = 4;
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  const auto threads = static_cast<int>(blockDim.x);
  RowGroup<A> group(threads, shared);
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const T* const row = logits[n];
    RunningSum<T> mine;
    for (int first = group.rank * W; first < slice.valid_cols; first += kAhead * threads * W) {
      // 1. maximum. max(z, max) drops NaN, but the sum keeps it.
      Vec<T, W> vec[kAhead];
      A max = mine.max;
      ASHLAR_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        const int c = first + k * threads * W;
        vec[k] = load_row<kVector, W>(row + c, c < slice.valid_cols ? slice.cols - c : 0);
      }
      ASHLAR_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        const int count = slice.valid_cols - first - k * threads * W;
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) {
          if (i < count) max = Max()(max, z.z(static_cast<A>(vec[k].wide(i))));
        }
      }
      mine.rescale(max);
      // 2. add the exponentials
      const A shift = mine.shift_of(max);
      ASHLAR_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        const int count = slice.valid_cols - first - k * threads * W;
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) {
          const A e = exp_of<T>(z.below(static_cast<A>(vec[k].wide(i)), shift));
          if (i < count) mine.sum += e;
        }
      }
    }
    // 3. the row's maximum
    const A max = group.reduce(mine.max, Max());
    mine.rescale(max);
    // 4. the row's sum
    const A sum = group.reduce(mine.sum, Add());
    if (group.rank != 0) continue;
    const int target = slice.target_column(n);
    row_max[n] = max;
    row_sum[n] = sum;
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
__global__ void __launch_bounds__(kMaxThreads)
    loss_max_count_kernel(Z z, Rows<const T> logits, Slice slice, int64_t rows, const AccumulateOf<T>* row_max,
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

/// Values for the gradient of one row. One thread computes them for its block.
template <typename A>
struct RowFactors {
  A max, weight, at_target;
};

/// Gradient of logits without a soft cap. The z-loss, if any, is computed from log Z (ZKind::kLse).
template <typename A>
struct PlainGrad {
  explicit PlainGrad(const LossBackward& args) : scale(static_cast<A>(args.shape.logit_scale)) {}

  __device__ __forceinline__ double lse_slope(double z_coef, double lse) const { return 2 * z_coef * lse; }
  /// Returns the gradient of the target's logit, in double.
  template <typename F>
  __device__ __forceinline__ double at_target(int64_t, const Slice& slice, double logit, const F& f) const {
    return f.weight * exponential(logit * slice.logit_scale - f.max) - f.unit;
  }
  template <typename T>
  __device__ __forceinline__ A of(A logit, const RowFactors<A>& f, A) const {
    return exp_of<T>(fused(logit, scale, -f.max)) * f.weight;
  }
  /// Returns what the z-loss adds to the gradient of the row's largest logits: nothing, since it depends on log Z only.
  __device__ __forceinline__ A share(int64_t, double, double) const { return 0; }

  A scale;
};

/// Gradient of logits with an optional soft cap (0 = none). If max_count is set, the z-loss is computed from the
/// largest logit, otherwise from log Z (ZKind::kLse).
template <typename A>
struct CappedGrad {
  explicit CappedGrad(const LossBackward& args)
      : scaled(args.shape),
        capped(args.shape),
        cap(args.shape.softcap),
        max_count(static_cast<const A*>(args.max_count.data)) {}

  __device__ __forceinline__ double lse_slope(double z_coef, double lse) const {
    return max_count == nullptr ? 2 * z_coef * lse : 0;
  }
  __device__ __forceinline__ A share(int64_t n, double unit_z_coef, double max) const {
    return max_count == nullptr ? A{0} : static_cast<A>(2 * unit_z_coef * max / max_count[n]);
  }
  __device__ __forceinline__ A z(A logit) const { return cap == 0 ? scaled.z(logit) : capped.z(logit); }
  template <typename F>
  __device__ __forceinline__ double at_target(int64_t n, const Slice& slice, double logit, const F& f) const {
    const double x = logit * slice.logit_scale;
    const double t = cap == 0 ? 0 : hyperbolic_tangent<false>(x / cap);
    const double z_t = cap == 0 ? x : cap * t;
    const bool largest = z(static_cast<A>(logit)) >= static_cast<A>(f.max);
    const double more = largest ? static_cast<double>(share(n, f.unit * f.z_coef, f.max)) : 0;
    return (f.weight * exponential(z_t - f.max) + more - f.unit) * (1 - t * t);
  }
  template <typename T>
  __device__ __forceinline__ A of(A logit, const RowFactors<A>& f, A share) const {
    const A value = z(logit), e = exp_of<T>(value - f.max);
    const A grad = e * f.weight + (value >= f.max ? share : A{0});
    if (cap == 0) return grad;
    const A t = value / static_cast<A>(cap);  // not finite if value is -inf; e and the gradient are then 0
    return e == A{0} ? A{0} : grad * fused(-t, t, A{1});
  }

  Scaled<A> scaled;
  Capped<A> capped;
  double cap;
  const A* max_count;
};

/// Minimum number of blocks per multiprocessor for PlainGrad<float>. With four blocks, a thread has 32 registers. That
/// is enough on Hopper (sm_90); on other architectures the kernel would spill registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
constexpr int kMostGradBlocks = 4;
#else
constexpr int kMostGradBlocks = 1;
#endif
template <class Grad>
constexpr int kGradBlocks = std::is_same_v<Grad, PlainGrad<float>> ? kMostGradBlocks : 1;

/// Arguments for the gradient of a row's target logit, in double.
struct TargetFactors {
  double max, weight, unit, z_coef;
};

/// A block processes one row at a time:
/// 1. one thread computes the factor of all exponentials, weight = unit * (1 + s) / row_sum, where unit = logit_scale /
///    number of valid tokens, and s is the derivative of the z-loss with respect to log Z
/// 2. the same thread computes the gradient of the target from its logit, before dlogits may overwrite the logit
/// 3. all threads compute the row; each vector is read and then written by the same thread.
template <typename T, typename U, bool kVector, class Grad>
__global__ void __launch_bounds__(kMaxThreads, kGradBlocks<Grad>)
    loss_backward_kernel(Grad grad, Rows<const T> logits, Rows<U> dlogits, Slice slice, int64_t rows,
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
      if (rank == 0) {
        // 1. the factor of all exponentials
        const double max = row_max[n], sum = row_sum[n];
        const double weight = unit * (1 + grad.lse_slope(z_coef, max + logarithm(sum))) / sum;
        // 2. the gradient of the target
        double at_target = 0;
        if (target >= 0)
          at_target = grad.at_target(n, slice, widen(row[target]), TargetFactors{max, weight, unit, z_coef});
        slot = {static_cast<A>(max), static_cast<A>(weight), static_cast<A>(at_target)};
      }
      __syncthreads();
      f = slot;
    }
    const A share = counts ? grad.share(n, unit * z_coef, f.max) : A{0};
    // 3. the gradients of the row
    for (int c = rank * W; c < slice.cols; c += threads * W) {
      const int count = slice.cols - c;
      A values[W] = {};
      if (counts && c < slice.valid_cols) {
        const Vec<T, W> z = load_row<kVector, W>(row + c, count);
        ASHLAR_UNROLL
        for (int i = 0; i < W; ++i) {
          const A value = grad.template of<T>(static_cast<A>(z.wide(i)), f, share);
          values[i] = c + i == target ? f.at_target : c + i < slice.valid_cols ? value : A{0};
        }
      }
      store_row<kVector>(out + c, narrow<U>(values), count);
    }
  }
}

Slice slice_of(const LossShape& shape, const ConstView& logits) {
  return {.targets = static_cast<const int32_t*>(shape.targets.data),
          .vocab_begin = shape.vocab_begin,
          .valid_cols = static_cast<int>(shape.valid_cols),
          .cols = static_cast<int>(logits.cols),
          .logit_scale = shape.logit_scale};
}

/// Returns the number of threads of a block: one for each vector of a row, in whole warps, at most kMaxThreads.
unsigned row_threads(int64_t cols, int64_t width) {
  return static_cast<unsigned>(std::min<int64_t>(kMaxThreads, div_up(std::max<int64_t>(cols, 1), width * 32) * 32));
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
                    .block = row_threads(args.shape.valid_cols, kWidth<T>)},
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
                  .block = row_threads(args.shape.valid_cols, 1)},
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
                        .block = row_threads(args.logits.cols, kW)},
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
