// Attention backward without tensor cores, for fp32 and fp64 storage, and for bf16 if head_dim exceeds the tiles of
// tensor_core_backward_*.cu. Formulas, symbols, passes and orders of summation are the same as in those files. Products
// are plain fused multiply-adds in the accumulate type. One block computes dk and dv of 64 keys, or dq of 64 queries:
//   1. finds the range of query tiles that see its keys, or of key tiles that its queries see;
//   2. for each of these tiles, and in the pass over keys for each query head:
//      a. computes s = q k^T and dout v^T, or both transposed;
//      b. applies the soft cap, ALiBi and T5's bias; computes P = exp(s - lse), 0 where a query does not see a key;
//         applies dropout; computes dS = P (M dout v^T - delta);
//      c. adds dv += (P M)^T dout and dk += dS^T q, or dq += dS k; the left factors pass through shared memory;
//   3. multiplies dk and dq by scale and stores or adds the gradients, rounded once.
// A block computes at most 128 columns (64 in fp64) of a gradient; wider heads take several blocks.

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/simt_tile.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

/// For one pair of a query and a key: computes weight = P M and score = dS from s and dout v^T.
template <typename A>
struct PairGradient {
  A weight, score;

  __device__ PairGradient(A s, A derivative, A gradient, A lse, A delta, bool seen, A factor) {
    const A probability = seen ? exponential(s - lse) : A{0};
    weight = probability * factor;
    score = seen ? derivative * (probability * (factor * gradient - delta)) : A{0};
  }
};

template <typename S>
__global__ void __launch_bounds__(kSimtThreads) simt_keys_kernel(Problem p, BackwardArrays<S> arrays) {
  using A = AccumulateOf<S>;
  ASHLAR_DYNAMIC_SHARED(SimtShared<A>, shared);
  const SimtThread thread;
  const int parts = (max(p.D, p.D_v) + kSimtWidth<A> - 1) / kSimtWidth<A>;
  const int first_column = static_cast<int>(blockIdx.x) % parts * kSimtWidth<A>;
  const int j = static_cast<int>(blockIdx.x) / parts * kSimtTile;
  const int64_t b = blockIdx.z, g = blockIdx.y;
  const auto scale = static_cast<A>(arrays.scores.scale), keep_scale = static_cast<A>(p.dropout.keep_scale);
  const bool drops = p.dropout.scalars != nullptr;
  A dk[4][kSimtColumns<A>] = {}, dv[4][kSimtColumns<A>] = {};
  const SimtRows<S> k(arrays.k, b, g, p.D, j, p.T_kv), v(arrays.v, b, g, p.D_v, j, p.T_kv);

  // 1. finds the queries `first` to `last`, whose positions allow them to see these keys. passed_over is true only for
  //    a tile of queries that sees none of these keys because of documents, windows or chunks.
  const int first = p.mask.first_query(j);
  const int last_key_of_block = min(j + kSimtTile, p.T_kv) - 1;
  const int last = p.mask.last_query(last_key_of_block);
  const int num_keys = (p.T_q + kQueryTile - 1) / kQueryTile;
  const auto passed_over = [&](int t) {
    if (arrays.tile_keys == nullptr) return false;
    const int4* const keys = arrays.tile_keys + b * num_keys + t / kQueryTile;
    const auto sees = [&](const int4& tile) { return tile.x <= last_key_of_block && tile.z >= j; };
    return !sees(keys[0]) && !(t / kQueryTile + 1 < num_keys && sees(keys[1]));
  };

  // 2. loop over query heads and tiles of queries
  for (int64_t h = g * p.group(); h < (g + 1) * p.group(); ++h) {
    const HeadDropout dropout = drops ? HeadDropout(p, b, h) : HeadDropout();
    const A* const lse = arrays.lse + (b * p.H + h) * p.T_q;
    const A* const delta = arrays.delta + (b * p.H + h) * p.T_q;
    const HeadScores<A> change(arrays.scores, h, p.mask.diagonal);
    for (int t = first / kSimtTile * kSimtTile; t <= last; t += kSimtTile) {
      if (passed_over(t)) continue;
      const SimtRows<S> q(arrays.q, b, h, p.D, t, p.T_q), dout(arrays.dout, b, h, p.D_v, t, p.T_q);
      if (drops) simt_draw(dropout, t, j, *shared, thread);

      // a. s = k q^T and ds = v dout^T, both [key, query]
      A s[4][4], ds[4][4];
      simt_scores(s, k, q, p.D, *shared, thread);
      simt_scores(ds, v, dout, p.D_v, *shared, thread);

      // b. probabilities and the gradients of the scores
      ASHLAR_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int query = thread.x + 16 * c;
        const KeyRange seen = p.mask.range(b, t + query);
        const bool any = seen.first <= seen.last;
        const A row_lse = any ? lse[t + query] : A{0}, row_delta = any ? delta[t + query] : A{0};
        ASHLAR_UNROLL
        for (int r = 0; r < 4; ++r) {
          const int key = 4 * thread.y + r;
          const A factor = !drops ? A{1} : simt_kept(*shared, query, key) ? keep_scale : A{0};
          A derivative;
          const A score = change.template apply<false>(scale * s[r][c], t + query, j + key, derivative);
          const PairGradient<A> pair(score, derivative, ds[r][c], row_lse, row_delta, seen.contains(j + key), factor);
          s[r][c] = pair.weight;
          ds[r][c] = pair.score;
        }
      }

      // c. dv and dk
      simt_add_weighted(dv, s, dout, first_column, p.D_v, *shared, thread);
      simt_add_weighted(dk, ds, q, first_column, p.D, *shared, thread);
    }
  }

  // 3. store dk and dv
  SimtOutput<S> out{.head = arrays.dk.head(b, g, p.D),
                    .row_stride = arrays.dk.row,
                    .first = j,
                    .limit = p.T_kv,
                    .first_column = first_column,
                    .D = p.D,
                    .accumulate = arrays.accumulate != 0};
  simt_store<S>(
      dk, [&](int) { return scale; }, out, thread);
  out.head = arrays.dv.head(b, g, p.D_v);
  out.D = p.D_v;
  out.row_stride = arrays.dv.row;
  simt_store<S>(
      dv, [&](int) { return A{1}; }, out, thread);
}

template <typename S>
__global__ void __launch_bounds__(kSimtThreads) simt_queries_kernel(Problem p, BackwardArrays<S> arrays) {
  using A = AccumulateOf<S>;
  ASHLAR_DYNAMIC_SHARED(SimtShared<A>, shared);
  const SimtThread thread;
  const int parts = (p.D + kSimtWidth<A> - 1) / kSimtWidth<A>;
  const int first_column = static_cast<int>(blockIdx.x) % parts * kSimtWidth<A>;
  const int t = (static_cast<int>(gridDim.x - 1 - blockIdx.x) / parts) * kSimtTile;
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / p.group();
  const auto scale = static_cast<A>(arrays.scores.scale), keep_scale = static_cast<A>(p.dropout.keep_scale);
  const bool drops = p.dropout.scalars != nullptr;
  const HeadDropout dropout = drops ? HeadDropout(p, b, h) : HeadDropout();

  // 1. the visible tiles
  const TileRange tiles = visible_tiles<kSimtTile>(p.mask, b, t, min(t + kSimtTile, p.T_q));
  KeyRange seen[4];
  A lse[4], delta[4], dq[4][kSimtColumns<A>] = {};
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
        const int key = thread.x + 16 * c;
        const A factor = !drops ? A{1} : simt_kept(*shared, 4 * thread.y + r, key) ? keep_scale : A{0};
        A derivative;
        const A score = change.template apply<false>(scale * s[r][c], t + 4 * thread.y + r, j + key, derivative);
        ds[r][c] =
            PairGradient<A>(score, derivative, ds[r][c], lse[r], delta[r], seen[r].contains(j + key), factor).score;
      }
    }

    // c. dq
    simt_add_weighted(dq, ds, k, first_column, p.D, *shared, thread);
  }

  // 3. store dq
  simt_store<S>(
      dq, [&](int) { return scale; },
      {.head = arrays.dq.head(b, h, p.D),
       .row_stride = arrays.dq.row,
       .first = t,
       .limit = p.T_q,
       .first_column = first_column,
       .D = p.D,
       .accumulate = arrays.accumulate != 0},
      thread);
}

template <typename S>
Launch launch_of(const char* name, const Problem& p, int rows, int heads, int columns) {
  return {.name = name,
          .grid = dim3(blocks_for(rows, kSimtTile) * blocks_for(columns, kSimtWidth<AccumulateOf<S>>), heads, p.B),
          .block = dim3(kSimtThreads),
          .shared_bytes = sizeof(SimtShared<AccumulateOf<S>>)};
}

}  // namespace

template <typename S>
void backward_keys_simt(const Problem& p, const BackwardArrays<S>& arrays, Stream& stream) {
  run_kernel(stream, launch_of<S>("attention_backward_keys", p, p.T_kv, p.G, std::max(p.D, p.D_v)), simt_keys_kernel<S>,
             p, arrays);
}
template void backward_keys_simt(const Problem&, const BackwardArrays<BF16>&, Stream&);
template void backward_keys_simt(const Problem&, const BackwardArrays<float>&, Stream&);
template void backward_keys_simt(const Problem&, const BackwardArrays<double>&, Stream&);

template <typename S>
void backward_queries_simt(const Problem& p, const BackwardArrays<S>& arrays, Stream& stream) {
  run_kernel(stream, launch_of<S>("attention_backward_queries", p, p.T_q, p.H, p.D), simt_queries_kernel<S>, p, arrays);
}
template void backward_queries_simt(const Problem&, const BackwardArrays<BF16>&, Stream&);
template void backward_queries_simt(const Problem&, const BackwardArrays<float>&, Stream&);
template void backward_queries_simt(const Problem&, const BackwardArrays<double>&, Stream&);

}  // namespace ashlar::ASHLAR_DEV::attention
