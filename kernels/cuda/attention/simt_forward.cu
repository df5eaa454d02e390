// Attention forward without tensor cores, for fp32 and fp64 storage, and for bf16 if head_dim exceeds the tiles of
// tensor_core_forward.cu. Formula, symbols and steps are the same as in that file. Products are plain fused
// multiply-adds in the accumulate type. A block
//   1. finds the range of key tiles that at least one of its 64 queries sees;
//   2. for each tile of 64 keys:
//      a. computes s = scale q k^T, from slices of 32 columns in shared memory;
//      b. applies the soft cap, ALiBi and T5's bias; scores of keys that a query does not see become -inf;
//      c. online softmax: finds the new maximum, applies exp, rescales l and out;
//      d. dropout: sets some of the probabilities p to zero, after they are summed;
//      e. adds out += p v; p passes through shared memory;
//   3. stores out / l and lse, both with the sink if there is one.
// A block computes at most 128 columns (64 in fp64) of out; wider heads take several blocks, each of which computes the
// whole softmax.

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/simt_tile.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

/// With kBiases the kernel supports T5's biases and listed last keys (KeyMask::last_keys). In fp32 these use so many
/// registers that an SM runs one block instead of two.
template <typename S, bool kBiases>
__global__ void __launch_bounds__(kSimtThreads) simt_forward_kernel(Problem p, ForwardArrays<S> arrays) {
  using A = AccumulateOf<S>;
  ASHLAR_DYNAMIC_SHARED(SimtShared<A>, shared);
  const SimtThread thread;
  const int parts = (p.D_v + kSimtWidth<A> - 1) / kSimtWidth<A>;
  const int first_column = static_cast<int>(blockIdx.x) % parts * kSimtWidth<A>;
  const int t = (static_cast<int>(gridDim.x - 1 - blockIdx.x) / parts) * kSimtTile;
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / p.group();
  const auto scale = static_cast<A>(arrays.scores.scale);

  // 1. the visible tiles
  const TileRange tiles = visible_tiles<kSimtTile>(p.mask, b, t, min(t + kSimtTile, p.T_q));
  // Without kBiases the key ranges are in registers. With kBiases they are in shared memory, since in registers they
  // would spill.
  ASHLAR_SHARED(KeyRange, listed, [kBiases ? kSimtTile : 1]);
  KeyRange by_position[4];
  A row_max[4], row_sum[4], out[4][kSimtColumns<A>];
  ASHLAR_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int row = 4 * thread.y + r;
    if constexpr (kBiases) {
      if (thread.x == 0) listed[row] = p.mask.range(b, t + row);
    } else {
      by_position[r] = p.mask.range<false>(b, t + row);
    }
    row_max[r] = -infinity<A>();
    row_sum[r] = 0;
    ASHLAR_UNROLL
    for (int s = 0; s < kSimtColumns<A>; ++s) out[r][s] = 0;
  }
  if constexpr (kBiases) __syncthreads();
  const auto seen = [&](int r) {
    if constexpr (kBiases) return listed[4 * thread.y + r];
    return by_position[r];
  };
  const bool drops = p.dropout.scalars != nullptr;
  const HeadDropout dropout = drops ? HeadDropout(p, b, h) : HeadDropout();
  const HeadScores<A, kBiases> change(arrays.scores, h, p.mask.diagonal);
  const SimtRows<S> q(arrays.q, b, h, p.D, t, p.T_q);

  // 2. loop over tiles of keys
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    const int j = tile * kSimtTile;
    if (drops) simt_draw(dropout, t, j, *shared, thread);

    // a. scores
    A s[4][4];
    simt_scores(s, q, SimtRows<S>(arrays.k, b, g, p.D, j, p.T_kv), p.D, *shared, thread);
    ASHLAR_UNROLL
    for (int r = 0; r < 4; ++r) {
      // b. score changes and the mask
      const KeyRange range = seen(r);
      A largest = row_max[r];
      ASHLAR_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int key = j + thread.x + 16 * c;
        s[r][c] = range.contains(key) ? change.template apply<false>(scale * s[r][c], t + 4 * thread.y + r, key)
                                      : -infinity<A>();
        largest = Max()(largest, s[r][c]);
      }
      // c. online softmax
      largest = warp_reduce(largest, Max(), 16);
      const A shift = largest == -infinity<A>() ? A{0} : largest;  // no key yet: exp(-inf - 0) is 0
      const A rescale = exponential<sizeof(S) == 2>(row_max[r] - shift);
      row_max[r] = largest;
      row_sum[r] *= rescale;
      ASHLAR_UNROLL
      for (int c = 0; c < 4; ++c) {
        s[r][c] = exponential<sizeof(S) == 2>(s[r][c] - shift);
        row_sum[r] += s[r][c];
        // d. dropout
        if (drops && !simt_kept(*shared, 4 * thread.y + r, thread.x + 16 * c)) s[r][c] = 0;
      }
      ASHLAR_UNROLL
      for (int c = 0; c < kSimtColumns<A>; ++c) out[r][c] *= rescale;
    }
    // e. out += p v
    simt_add_weighted(out, s, SimtRows<S>(arrays.v, b, g, p.D_v, j, p.T_kv), first_column, p.D_v, *shared, thread);
  }

  // 3. store out and lse
  A factor[4];
  ASHLAR_UNROLL
  for (int r = 0; r < 4; ++r) {
    const A sum = warp_reduce(row_sum[r], Add(), 16);
    const int row = t + 4 * thread.y + r;
    const bool empty = seen(r).first > seen(r).last;
    factor[r] = empty ? A{0} : static_cast<A>(p.dropout.keep_scale) / sum;
    A lse = empty ? -infinity<A>() : row_max[r] + logarithm(sum);
    if (arrays.scores.sinks != nullptr) factor[r] *= join_sink(static_cast<A>(widen(arrays.scores.sinks[h])), lse);
    if (thread.x == 0 && first_column == 0 && row < p.T_q) arrays.lse[(b * p.H + h) * p.T_q + row] = lse;
  }
  simt_store<S>(
      out, [&](int r) { return factor[r]; },
      {.head = arrays.out.head(b, h, p.D_v),
       .row_stride = arrays.out.row,
       .first = t,
       .limit = p.T_q,
       .first_column = first_column,
       .D = p.D_v,
       .accumulate = false},
      thread);
}

}  // namespace

template <typename S>
void forward_simt(const Problem& p, const ForwardArrays<S>& arrays, Stream& stream) {
  const Launch launch{
      .name = "attention_forward",
      .grid = dim3(blocks_for(p.T_q, kSimtTile) * blocks_for(p.D_v, kSimtWidth<AccumulateOf<S>>), p.H, p.B),
      .block = dim3(kSimtThreads),
      .shared_bytes = sizeof(SimtShared<AccumulateOf<S>>)};
  run_kernel(stream, launch,
             arrays.scores.biases != nullptr || p.mask.last_keys != nullptr ? simt_forward_kernel<S, true>
                                                                            : simt_forward_kernel<S, false>,
             p, arrays);
}
template void forward_simt(const Problem&, const ForwardArrays<BF16>&, Stream&);
template void forward_simt(const Problem&, const ForwardArrays<float>&, Stream&);
template void forward_simt(const Problem&, const ForwardArrays<double>&, Stream&);

}  // namespace ashlar::ASHLAR_DEV::attention
