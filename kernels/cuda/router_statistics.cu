// Sums of a router over the rows of each sequence, and the balance loss made of them.
// Statistics: a block processes 32 rows of one sequence and writes its sums, in fp64; a second kernel adds the sums of
// the blocks of a sequence in order. The first reads the logits twice (the second time from cache) and computes two or
// three exponentials per logit. Counts are added by integer atomics in shared memory.
// Balance loss: one block, a warp per sequence; a few thousand numbers.

#include "core/backend/routing.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/router_row.h"

namespace ashlar::ASHLAR_DEV {
namespace {

constexpr int kRows = 32;  // number of rows of a block
constexpr int kBalanceThreads = 512;

template <typename A>
struct Statistics {
  Rows<const A> logits;
  const int32_t* choices;
  int64_t rows, sequence_rows;
  int parts;  ///< number of blocks of a sequence
  int experts, k;
  bool sigmoid;
};

/// The columns of the sums of a block: counts of all experts, scores of all experts, sum of lse^2, sum of entropy.
__host__ __device__ constexpr int64_t sums_width(int64_t experts) { return 2 * experts + 2; }

/// Returns -sum_e p_e log p_e of a row. The whole warp must call it.
template <typename A>
__device__ __forceinline__ A entropy_of(const Statistics<A>& a, const A* row, const RowSoftmax<A>& softmax, A sigmoids,
                                        int lane) {
  const A log_sum = logarithm(a.sigmoid ? sigmoids : softmax.sum);
  A entropy = 0;
  for (int e = lane; e < a.experts; e += 32) {
    const A logit = row[e];
    const A log_p = (a.sigmoid ? Sigmoid<A>::logarithm_of(logit) : logit - softmax.max) - log_sum;
    const A p = exponential(log_p);
    if (p != A{0}) entropy = fused(-p, log_p, entropy);  // 0 log 0 is 0
  }
  return warp_reduce(entropy, Add());
}

/// A block  1. computes for each row what p needs, lse and entropy, a warp per row  2. counts choices, and adds p of
/// its rows in order, a thread per expert  3. writes its sums.
template <typename A>
__global__ void __launch_bounds__(kThreads, 3) router_partials_kernel(Statistics<A> a, double* partial) {
  ASHLAR_DYNAMIC_SHARED(int, counts);
  ASHLAR_SHARED(A, max_of, [kRows]);
  ASHLAR_SHARED(A, inverse_of, [kRows]);
  ASHLAR_SHARED(double, totals, [2][kWarps]);
  const auto thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t sequence = blockIdx.x / static_cast<unsigned>(a.parts),
                part = blockIdx.x % static_cast<unsigned>(a.parts);
  const int64_t first = sequence * a.sequence_rows + part * kRows;
  const int64_t end = min(min(first + kRows, (sequence + 1) * a.sequence_rows), a.rows);
  const auto size = static_cast<int>(max(end - first, int64_t{0}));
  double* const out = partial + blockIdx.x * sums_width(a.experts);

  // 1. rows
  double squares = 0, entropy = 0;
  for (int r = warp; r < size; r += kWarps) {
    const A* const row = a.logits[first + r];
    const RowSoftmax<A> softmax(row, a.experts, lane);
    const A sigmoids = a.sigmoid ? sum_sigmoids(row, a.experts, lane) : A{1};
    const double lse = softmax.lse();
    squares = fma(lse, lse, squares);
    entropy += entropy_of(a, row, softmax, sigmoids, lane);
    if (lane == 0) {
      max_of[r] = softmax.max;
      inverse_of[r] = a.sigmoid ? A{1} / sigmoids : softmax.inverse;
    }
  }
  if (lane == 0) {
    totals[0][warp] = squares;
    totals[1][warp] = entropy;
  }
  for (int e = thread; e < a.experts; e += kThreads) counts[e] = 0;
  __syncthreads();

  // 2. experts
  for (int i = thread; i < size * a.k; i += kThreads) atomicAdd(&counts[a.choices[first * a.k + i]], 1);
  for (int e = thread; e < a.experts; e += kThreads) {
    double sum = 0;
    for (int r = 0; r < size; ++r) {
      const A logit = a.logits[first + r][e];
      sum += (a.sigmoid ? Sigmoid<A>(logit).score : exponential(logit - max_of[r])) * inverse_of[r];
    }
    out[a.experts + e] = sum;
  }
  __syncthreads();

  // 3. counts and totals
  for (int e = thread; e < a.experts; e += kThreads) out[e] = counts[e];
  if (thread >= 2) return;
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += totals[thread][w];
  out[2 * a.experts + thread] = total;
}

struct StatisticsSums {
  Rows<double> counts, scores;
  double *lse_squares, *entropy, *all_counts;  ///< null if absent
};

/// Block (s, t) adds the sums of the blocks of sequence s for 64 columns of counts and scores. Blocks (0, t) also add
/// the counts of all sequences, and block (0, last) the two totals.
__global__ void __launch_bounds__(kSumLanes* kSumWarps)
    router_sums_kernel(const double* partial, int64_t sequences, int64_t parts, int64_t experts, StatisticsSums out) {
  const Rows<const double> rows{partial, sums_width(experts)};
  const int64_t s = blockIdx.x;
  if (blockIdx.y + 1 < gridDim.y) {
    const int64_t first = int64_t{blockIdx.y} * kSumLanes * kWidth<double>;
    const int passes = s == 0 && out.all_counts != nullptr && first < experts ? 2 : 1;
    for (int pass = 0; pass < passes; ++pass) {
      const bool all = pass == 1;
      if (all) __syncthreads();  // the first pass has read the shared sums
      sum_columns(rows, all ? 0 : s * parts, (all ? sequences : s + 1) * parts, first, all ? experts : 2 * experts,
                  true, [&](int64_t column, double sum) {
                    if (all) {
                      out.all_counts[column] += sum;
                    } else {
                      (column < experts ? out.counts[s] : out.scores[s] - experts)[column] = sum;
                    }
                  });
    }
  } else if (s == 0) {
    sum_columns(rows, 0, sequences * parts, 2 * experts, 2 * experts + 2, true, [&](int64_t column, double sum) {
      double* const to = column == 2 * experts ? out.lse_squares : out.entropy;
      if (to != nullptr) *to += sum;
    });
  }
}

struct Balance {
  Rows<const double> counts, scores;
  int64_t count_rows, score_rows;
  int experts;
  const StepScalars* scalars;
  double factor, loss_factor;
};

/// Launched with one block. For each sequence a warp  1. adds the counts  2. writes the balance, adds f times scores.
/// At the end  3. the block adds the sums of its warps in order.
template <typename A>
__global__ void __launch_bounds__(kBalanceThreads) balance_loss_kernel(Balance a, Rows<A> balance, double* loss) {
  ASHLAR_SHARED(double, sums, [kBalanceThreads / 32]);
  const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const double factor = a.factor * a.experts * (a.scalars != nullptr ? a.scalars->inv_tokens : 1.0);
  double sum = 0;
  for (int64_t s = warp; s < max(a.count_rows, a.score_rows); s += kBalanceThreads / 32) {
    // 1. the number of choices
    const double* const counts = a.counts[a.count_rows == 1 ? 0 : s];
    double total = 0;
    for (int e = lane; e < a.experts; e += 32) total += counts[e];
    total = warp_reduce(total, Add());
    // 2. f
    for (int e = lane; e < a.experts; e += 32) {
      const double f = total == 0 ? 0.0 : counts[e] / total;
      if (balance && s < a.count_rows) balance[s][e] = narrow<A>(factor * f);
      if (s < a.score_rows) sum = fma(f, a.scores[s][e], sum);
    }
  }
  // 3. the loss
  sum = warp_reduce(sum, Add());
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int w = 0; w < kBalanceThreads / 32; ++w) total += sums[w];
  *loss += a.experts * a.loss_factor * total;
}

/// Launched with one block: the sum of the counts, then a thread per expert.
template <typename A>
__global__ void __launch_bounds__(kThreads) balance_update_kernel(const double* counts, int experts, A* selection_bias,
                                                                  A* previous_counts, const ClipState* clip, A rate) {
  ASHLAR_SHARED(double, sums, [kWarps]);
  if (clip->skip != 0) return;
  const auto thread = static_cast<int>(threadIdx.x);
  double own = 0;
  for (int e = thread; e < experts; e += kThreads) own += counts[e];
  own = warp_reduce(own, Add());
  if (thread % 32 == 0) sums[thread / 32] = own;
  __syncthreads();
  double total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w];
  for (int e = thread; e < experts; e += kThreads) {
    const double scaled = counts[e] * experts;  // compared with E times the mean
    if (selection_bias != nullptr && scaled != total) selection_bias[e] += scaled < total ? rate : -rate;
    if (previous_counts != nullptr) previous_counts[e] = narrow<A>(counts[e]);
  }
}

}  // namespace

void CudaBackend::launch(const RouterStatistics& args, Stream& stream) {
  const int64_t S = args.counts.rows, E = args.logits.cols;
  if (S == 0) return;
  check_experts("router_statistics", E);
  const int64_t parts = div_up(std::min(args.sequence_rows, args.logits.rows), kRows);
  auto* const partial =
      static_cast<double*>(scratch(stream, S * parts * sums_width(E) * static_cast<int64_t>(sizeof(double))));
  with_accumulate(args.logits.dtype, [&](auto t) {
    using A = decltype(t);
    const Statistics<A> statistics{.logits = rows_of<A>(args.logits),
                                   .choices = static_cast<const int32_t*>(args.choices.data),
                                   .rows = args.logits.rows,
                                   .sequence_rows = args.sequence_rows,
                                   .parts = static_cast<int>(parts),
                                   .experts = static_cast<int>(E),
                                   .k = static_cast<int>(args.choices.cols),
                                   .sigmoid = args.score == RouterScore::kSigmoid};
    run_kernel(stream,
               {.name = "router_partials",
                .grid = static_cast<unsigned>(S * parts),
                .block = unsigned{kThreads},
                .shared_bytes = E * static_cast<int64_t>(sizeof(int))},
               router_partials_kernel<A>, statistics, partial);
  });
  const StatisticsSums sums{.counts = rows_of<double>(args.counts),
                            .scores = rows_of<double>(args.scores),
                            .lse_squares = static_cast<double*>(args.lse_squares.data),
                            .entropy = static_cast<double*>(args.entropy.data),
                            .all_counts = static_cast<double*>(args.all_counts.data)};
  run_kernel(stream,
             {.name = "router_sums",
              .grid = {static_cast<unsigned>(S), blocks_for(2 * E, kSumLanes * kWidth<double>) + 1},
              .block = {kSumLanes, kSumWarps}},
             router_sums_kernel, static_cast<const double*>(partial), S, parts, E, sums);
}

void CudaBackend::launch(const BalanceLoss& args, Stream& stream) {
  const Balance balance{.counts = rows_of<double>(args.counts),
                        .scores = rows_of<double>(args.scores),
                        .count_rows = args.counts.rows,
                        .score_rows = args.scores.rows,
                        .experts = static_cast<int>(args.counts.cols),
                        .scalars = static_cast<const StepScalars*>(args.scalars.data),
                        .factor = args.factor,
                        .loss_factor = args.loss_factor};
  with_accumulate(args.balance ? args.balance.dtype : DType::kFloat32, [&](auto t) {
    using A = decltype(t);
    run_kernel(stream, {.name = "balance_loss", .grid = 1U, .block = unsigned{kBalanceThreads}}, balance_loss_kernel<A>,
               balance, rows_of<A>(args.balance), args.loss.as<double>());
  });
}

void CudaBackend::launch(const BalanceUpdate& args, Stream& stream) {
  const ConstView state = args.selection_bias ? args.selection_bias : args.previous_counts;
  if (!state) return;
  with_accumulate(state.dtype, [&](auto t) {
    using A = decltype(t);
    run_kernel(stream, {.name = "balance_update", .grid = 1U, .block = unsigned{kThreads}}, balance_update_kernel<A>,
               static_cast<const double*>(args.counts.data), static_cast<int>(args.counts.size()),
               static_cast<A*>(args.selection_bias.data), static_cast<A*>(args.previous_counts.data),
               static_cast<const ClipState*>(args.clip.data), static_cast<A>(args.rate));
  });
}

}  // namespace ashlar::ASHLAR_DEV
