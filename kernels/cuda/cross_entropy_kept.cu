// Cross-entropy that reads its logits once: statistics of a row and, in place, its gradient. Memory-bound: 4 B and two
// exponentials per element in bf16. A block keeps the row between the two in shared memory and, above 224 KiB, in
// registers. Rows that do not fit (on sm_90 above 163840 columns of bf16, with a soft cap 114688) or have no aligned
// vectors are read twice, by the kernels of cross_entropy.cu, with the same bits.

#include "core/backend/cross_entropy.h"

#include <type_traits>

#include "kernels/cuda/cross_entropy_row.h"
#include "kernels/cuda/cuda_backend.h"

namespace ashlar::ASHLAR_DEV {
namespace {

/// How many vectors of a row a thread keeps in shared memory and in registers, in groups of kLossAhead. kMaxLossThreads
/// threads keep 224 KiB and 96 KiB.
constexpr int kSharedGroups = 7, kRegisterGroups = 3;

/// Waits until at most `pending` of this thread's groups of copies are pending.
__device__ __forceinline__ void wait_for_copies(int pending) {
  static_assert(kSharedGroups == 7);
  switch (pending) {
    case 6: return cp_async_wait_group<6>();
    case 5: return cp_async_wait_group<5>();
    case 4: return cp_async_wait_group<4>();
    case 3: return cp_async_wait_group<3>();
    case 2: return cp_async_wait_group<2>();
    case 1: return cp_async_wait_group<1>();
    default: return cp_async_wait_group<0>();
  }
}

/// The vectors of a row that a thread keeps in shared memory. No other thread touches them: vector v of the row belongs
/// to thread v % threads. Group g is the vectors [g * kLossAhead, (g + 1) * kLossAhead) of a thread.
template <typename T>
struct SharedVectors {
  static constexpr int W = kWidth<T>;
  T* shared;  ///< vector v of the row is at v * W
  int rank, step, valid_cols, groups;

  __device__ __forceinline__ int column(int group, int k) const { return rank * W + (group * kLossAhead + k) * step; }
  /// Starts the copy of one vector of a row.
  __device__ __forceinline__ void copy(const T* row, int c) const {
    if (c < valid_cols) cp_async<16>(shared_address(shared + c), row + c, 16);
  }
  __device__ __forceinline__ void copy(const T* row) const {
    for (int g = 0; g < groups; ++g) {
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) copy(row, column(g, k));
      cp_async_commit_group();
    }
  }
  __device__ __forceinline__ Vec<T, W> load(int c) const { return load_row<true, W>(shared + c, valid_cols - c); }
};

/// LossStatsAndGrad: like loss_row_stats_kernel and then loss_backward_kernel, with vectors of the row kept between the
/// two: the first kSharedGroups groups of a thread in shared memory, kGroups more in registers. While a thread writes
/// the gradients of a row, it starts the copies of its vectors of the next row.
template <typename T, int kGroups, class Z, class Grad>
__global__ void __launch_bounds__(kMaxLossThreads, kGroups == 0 ? 2 : 1)
    loss_stats_and_grad_kernel(Z z, Grad grad, Rows<const T> logits, Rows<T> dlogits, LossSlice slice, int64_t rows,
                               AccumulateOf<T>* row_max, AccumulateOf<T>* row_sum, AccumulateOf<T>* target_logit,
                               double z_coef, const StepScalars* scalars) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_DYNAMIC_SHARED(T, kept);
  ASHLAR_SHARED(A, shared, [RowGroup<A>::kShared]);
  ASHLAR_SHARED(RowFactors<A>, factors, [2]);
  const auto threads = static_cast<int>(blockDim.x);
  RowGroup<A> group(threads, shared);
  const int step = threads * W, groups = (slice.cols + kLossAhead * step - 1) / (kLossAhead * step);
  const SharedVectors<T> mine{kept, group.rank, step, slice.valid_cols, min(groups, kSharedGroups)};
  const double unit = slice.logit_scale * scalars->inv_valid_tokens;
  int turn = 0;
  mine.copy(logits[blockIdx.x]);
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const T* const row = logits[n];
    T* const out = dlogits[n];
    // 1. statistics
    Vec<T, W> last[kGroups + 1][kLossAhead];  // the last group is unused: no array is empty
    ASHLAR_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) {
        const int c = mine.column(kSharedGroups + g, k);
        last[g][k] = load_row<true, W>(row + c, slice.valid_cols - c);
      }
    }
    RunningSum<T> sum;
    for (int g = 0; g < mine.groups; ++g) {
      wait_for_copies(mine.groups - 1 - g);
      const int first = mine.column(g, 0);
      if (first >= slice.valid_cols) break;
      Vec<T, W> vec[kLossAhead];
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) vec[k] = mine.load(mine.column(g, k));
      add_vectors(sum, z, vec, slice.valid_cols - first, step);
    }
    ASHLAR_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const int first = mine.column(kSharedGroups + g, 0);
      if (first < slice.valid_cols) add_vectors(sum, z, last[g], slice.valid_cols - first, step);
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) keep_packed(last[g][k]);
    }
    const RunningSum<T> total = row_total(sum, group);
    // 2. factors. Two slots alternate: before a slot is rewritten, all threads have passed a barrier after reading it.
    const bool counts = slice.targets[n] >= 0;
    const int target = slice.target_column(n);
    RowFactors<A>& slot = factors[turn];
    turn = 1 - turn;
    if (group.rank == 0) {
      row_max[n] = total.max;
      row_sum[n] = total.sum;
      target_logit[n] = target < 0 ? A{0} : z.z(static_cast<A>(widen(row[target])));
      if (counts) slot = row_factors(grad, slice, n, row, total.max, total.sum, unit, z_coef);
    }
    __syncthreads();
    const RowFactors<A> f = counts ? slot : RowFactors<A>{};
    // 3. gradients
    const auto store_gradients = [&](const Vec<T, W>& vec, int c) {
      if (c >= slice.cols) return;
      Vec<T, W> values{};
      if (counts && c < slice.valid_cols) values = gradients<T>(grad, vec, c, slice.valid_cols, target, f, A{0});
      store(out + c, values);
    };
    ASHLAR_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) store_gradients(last[g][k], mine.column(kSharedGroups + g, k));
    }
    const bool more = n + gridDim.x < rows;
    const T* const next = more ? logits[n + gridDim.x] : nullptr;
    for (int g = 0; g < mine.groups; ++g) {
      ASHLAR_UNROLL
      for (int k = 0; k < kLossAhead; ++k) {
        const int c = mine.column(g, k);
        store_gradients(mine.load(c), c);
        if (more) mine.copy(next, c);
      }
      cp_async_commit_group();
    }
  }
}

/// Launches loss_stats_and_grad_kernel and returns true, or returns false if it cannot keep such rows.
template <typename T>
bool keep_rows(const LossStatsAndGrad& args, int64_t max_shared_bytes, Stream& stream) {
  using A = AccumulateOf<T>;
  constexpr int64_t kStaticBytes = 2048;  // at least the kernel's static shared memory
  const int64_t cols = args.logits.cols, row_bytes = cols * static_cast<int64_t>(sizeof(T));
  const unsigned threads = loss_threads(args.shape.valid_cols, kWidth<T>);
  const int64_t group_bytes = int64_t{kLossAhead} * threads * 16;
  const int64_t shared_bytes = std::min(row_bytes, kSharedGroups * group_bytes);
  // A soft cap needs the registers itself.
  const int64_t most_bytes = (kSharedGroups + (args.shape.softcap == 0 ? kRegisterGroups : 0)) * group_bytes;
  if (cols % kWidth<T> != 0 || !rows_aligned_for(kWidth<T>, args.logits, args.dlogits) || row_bytes > most_bytes ||
      shared_bytes + kStaticBytes > max_shared_bytes)
    return false;
  // Blocks that a multiprocessor holds at a time; each goes on to the next row.
  const int64_t blocks = 2 * (shared_bytes + kStaticBytes) <= 227 * 1024 ? 2 : 1;
  const Launch launch{.name = "loss_stats_and_grad",
                      .grid = num_blocks(args.logits.rows, blocks * kMultiprocessors),
                      .block = threads,
                      .shared_bytes = shared_bytes};
  const auto run = [&](auto groups, const auto& z, const auto& grad) {
    run_kernel(stream, launch,
               loss_stats_and_grad_kernel<T, groups.value, std::decay_t<decltype(z)>, std::decay_t<decltype(grad)>>, z,
               grad, rows_of<T>(args.logits), rows_of<T>(args.dlogits), slice_of(args.shape, args.logits),
               args.logits.rows, static_cast<A*>(args.row_max.data), static_cast<A*>(args.row_sum.data),
               static_cast<A*>(args.target_logit.data), args.z_coef,
               static_cast<const StepScalars*>(args.scalars.data));
  };
  constexpr std::integral_constant<int, 0> kNoGroups;
  if (args.shape.softcap != 0) {
    run(kNoGroups, Capped<A>(args.shape), CappedGrad<A>(args.grad()));
  } else if (row_bytes <= shared_bytes) {
    run(kNoGroups, Scaled<A>(args.shape), PlainGrad<A>(args.grad()));
  } else {
    run(std::integral_constant<int, kRegisterGroups>(), Scaled<A>(args.shape), PlainGrad<A>(args.grad()));
  }
  return true;
}

}  // namespace

void CudaBackend::launch(const LossStatsAndGrad& args, Stream& stream) {
  if (args.logits.size() == 0) return launch(args.stats(), stream);
  const bool one_dtype = args.logits.dtype == args.dlogits.dtype;
  const int64_t shared = device_.max_shared_bytes();
  if (one_dtype && args.logits.dtype == DType::kBFloat16 && keep_rows<BF16>(args, shared, stream)) return;
  if (one_dtype && args.logits.dtype == DType::kFloat32 && keep_rows<float>(args, shared, stream)) return;
  launch(args.stats(), stream);
  launch(args.grad(), stream);
}

}  // namespace ashlar::ASHLAR_DEV
