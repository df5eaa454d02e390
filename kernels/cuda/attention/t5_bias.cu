// T5's biases of attention (core/backend/attention.h). One kernel looks up the bias of every distance in T5's table and
// stores it in a small array, so that buckets are looked up once; forward and backward read this array. The gradient of
// the table is a separate pass over the scores, like the pass for dq in simt_backward.cu: without tensor cores, for
// every storage type. One block processes 64 queries of one sample and one head. It
//   1. finds the range of key tiles that at least one of its queries sees;
//   2. for each of these tiles:
//      a. computes s = q k^T and dout v^T;
//      b. computes the gradients of the scores after the soft cap, dS = P (M dout v^T - delta), 0 where a key is
//         not seen;
//      c. sums dS along each of the 127 diagonals (a diagonal is a distance i - j), in the order of the queries;
//      d. adds the sums of the diagonals to the sums of their buckets, in double, in the order of the distances;
//   3. stores the sums of the buckets; a second kernel adds them over blocks in the order of samples and queries.
// The order of additions is fixed, so that every run gives the same bits.

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/simt_tile.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

constexpr int kDiagonals = 2 * kSimtTile - 1;
static_assert(kBiasQueries == kSimtTile);

template <typename S>
__global__ void __launch_bounds__(kThreads) gather_biases_kernel(int H, Scores<S> scores, AccumulateOf<S>* biases) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < int64_t{H} * scores.distances; i += step) {
    const int64_t h = i / scores.distances, n = i % scores.distances;
    biases[i] = static_cast<AccumulateOf<S>>(widen(scores.t5_bias[scores.t5_buckets[n] * scores.t5_row + h]));
  }
}

template <typename S>
__global__ void __launch_bounds__(kSimtThreads)
    bias_gradient_kernel(Problem p, BackwardArrays<S> arrays, double* partials) {
  using A = AccumulateOf<S>;
  ASHLAR_DYNAMIC_SHARED(SimtShared<A>, shared);
  const SimtThread thread;
  const int tile_of_queries = static_cast<int>(gridDim.x - 1 - blockIdx.x), t = tile_of_queries * kSimtTile;
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / p.group();
  const Scores<S>& scores = arrays.scores;
  const auto scale = static_cast<A>(scores.scale), keep_scale = static_cast<A>(p.dropout.keep_scale);
  const bool drops = p.dropout.scalars != nullptr;
  const HeadDropout dropout = drops ? HeadDropout(p, b, h) : HeadDropout();
  double* const sums = partials + ((b * gridDim.x + tile_of_queries) * p.H + h) * scores.num_buckets;
  for (int i = thread.index; i < scores.num_buckets; i += kSimtThreads) sums[i] = 0;

  // 1. the visible tiles
  const TileRange tiles = visible_tiles<kSimtTile>(p.mask, b, t, min(t + kSimtTile, p.T_q));
  KeyRange seen[4];
  A lse[4], delta[4];
  ASHLAR_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int row = t + 4 * thread.y + r;
    const int64_t at = (b * p.H + h) * p.T_q + row;
    seen[r] = p.mask.range(b, row);
    lse[r] = seen[r].first <= seen[r].last ? arrays.lse[at] : A{0};
    delta[r] = seen[r].first <= seen[r].last ? arrays.delta[at] : A{0};
  }
  const SimtRows<S> q(arrays.q, b, h, p.D, t, p.T_q), dout(arrays.dout, b, h, p.D_v, t, p.T_q);
  const HeadScores<A> change(arrays.scores, h, p.mask.diagonal);
  constexpr int kStride = SimtShared<A>::kWeightsStride;

  // 2. loop over tiles of keys
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    const int j = tile * kSimtTile;
    const SimtRows<S> k(arrays.k, b, g, p.D, j, p.T_kv), v(arrays.v, b, g, p.D_v, j, p.T_kv);
    if (drops) simt_draw(dropout, t, j, *shared, thread);

    // a. s = q k^T and ds = dout v^T
    A s[4][4], ds[4][4];
    simt_scores(s, q, k, p.D, *shared, thread);
    simt_scores(ds, dout, v, p.D_v, *shared, thread);

    // b. the gradients of the scores
    ASHLAR_UNROLL
    for (int r = 0; r < 4; ++r) {
      ASHLAR_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int query = 4 * thread.y + r, key = thread.x + 16 * c;
        const A factor = !drops ? A{1} : simt_kept(*shared, query, key) ? keep_scale : A{0};
        const A score = change.template apply<false>(scale * s[r][c], t + query, j + key);
        const A gradient = exponential(score - lse[r]) * (factor * ds[r][c] - delta[r]);
        shared->weights[query * kStride + key] = seen[r].contains(j + key) ? gradient : A{0};
      }
    }
    __syncthreads();  // weights are complete; rows and dropout bits have been read and may be overwritten

    // c. each thread sums one diagonal: query - key = thread.index - 63
    if (thread.index < kDiagonals) {
      const int difference = thread.index - (kSimtTile - 1);
      A sum = 0;
      for (int query = max(difference, 0); query < min(kSimtTile, kSimtTile + difference); ++query)
        sum += shared->weights[query * kStride + query - difference];
      shared->rows[thread.index] = sum;
      shared->kept[thread.index] =
          static_cast<uint32_t>(scores.t5_buckets[scores.entry(p.mask.diagonal + t - j + difference)]);
    }
    __syncthreads();

    // d. add the sums of the diagonals to the sums of their buckets
    for (int bucket = thread.index; bucket < scores.num_buckets; bucket += kSimtThreads) {
      double sum = sums[bucket];
      for (int i = 0; i < kDiagonals; ++i) {
        if (shared->kept[i] == static_cast<uint32_t>(bucket)) sum += static_cast<double>(shared->rows[i]);
      }
      sums[bucket] = sum;
    }
    __syncthreads();  // all threads have read the shared memory that the next tile overwrites
  }
}

/// Each thread adds the partial sums of one element of T5's table.
template <typename A>
__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(int H, int buckets, int64_t parts, const double* partials, A* dbias, int64_t row,
                        bool accumulate) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= H * buckets) return;
  A& to = dbias[i % buckets * row + i / buckets];
  double sum = accumulate ? static_cast<double>(to) : 0;
  for (int64_t part = 0; part < parts; ++part) sum += partials[part * H * buckets + i];
  to = static_cast<A>(sum);
}

}  // namespace

template <typename S>
void gather_biases(const Problem& p, const Scores<S>& scores, AccumulateOf<S>* biases, Stream& stream) {
  const Launch launch{.name = "attention_gather_biases",
                      .grid = dim3(std::min(blocks_for(int64_t{p.H} * scores.distances, kThreads), 1024U)),
                      .block = dim3(kThreads)};
  run_kernel(stream, launch, gather_biases_kernel<S>, p.H, scores, biases);
}
template void gather_biases(const Problem&, const Scores<BF16>&, float*, Stream&);
template void gather_biases(const Problem&, const Scores<float>&, float*, Stream&);
template void gather_biases(const Problem&, const Scores<double>&, double*, Stream&);

template <typename S>
void bias_gradient(const Problem& p, const BackwardArrays<S>& arrays, double* partials, AccumulateOf<S>* dbias,
                   int64_t row, bool accumulate, Stream& stream) {
  const int64_t parts = int64_t{p.B} * blocks_for(p.T_q, kBiasQueries);
  const int buckets = arrays.scores.num_buckets;
  if (parts > 0) {
    const Launch launch{.name = "attention_bias_gradient",
                        .grid = dim3(blocks_for(p.T_q, kBiasQueries), p.H, p.B),
                        .block = dim3(kSimtThreads),
                        .shared_bytes = sizeof(SimtShared<AccumulateOf<S>>)};
    run_kernel(stream, launch, bias_gradient_kernel<S>, p, arrays, partials);
  }
  const Launch launch{.name = "attention_add_partials",
                      .grid = dim3(blocks_for(int64_t{p.H} * buckets, kThreads)),
                      .block = dim3(kThreads)};
  run_kernel(stream, launch, add_partials_kernel<AccumulateOf<S>>, p.H, buckets, parts, partials, dbias, row,
             accumulate);
}
template void bias_gradient(const Problem&, const BackwardArrays<BF16>&, double*, float*, int64_t, bool, Stream&);
template void bias_gradient(const Problem&, const BackwardArrays<float>&, double*, float*, int64_t, bool, Stream&);
template void bias_gradient(const Problem&, const BackwardArrays<double>&, double*, double*, int64_t, bool, Stream&);

}  // namespace ashlar::ASHLAR_DEV::attention
