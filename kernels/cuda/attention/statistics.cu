// What the backward passes of attention want to know beforehand, one small kernel each:
//   delta[b, h, t] = sum_d out dout, which is sum_j P M dout v^T (Dao 2023, arXiv:2307.08691, algorithm 2, line 4);
//   the first keys of tiles of queries, so that a block of keys passes over tiles whose documents begin after it.

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/visible.h"
#include "kernels/cuda/dev/host.h"
#include "kernels/cuda/dev/reduce.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

constexpr int kThreads = 256;

constexpr int kDeltaRows = 8;  // of a warp: their sums fill a sector of 32 bytes

/// A warp for 8 neighbouring queries of one head, `lanes` (4 to 32) for each row, as many rows at a time as fit.
template <typename S>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(Problem p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta, int lanes) {
  using A = AccumulateOf<S>;
  constexpr int W = kWidth<S>;
  const int groups = (p.T_q + kDeltaRows - 1) / kDeltaRows;
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (warp >= int64_t{p.B} * p.H * groups) return;
  const int lane = threadIdx.x % 32, rows = 32 / lanes;
  const int64_t h = warp % p.H, b = warp / p.H / groups;  // heads of one row lie side by side
  const int first = static_cast<int>(warp / p.H % groups) * kDeltaRows;
  const bool vector = out.align == 16 && dout.align == 16;
  A mine = 0;
  for (int begin = 0; begin < kDeltaRows; begin += rows) {
    const int t = first + begin + lane / lanes;
    A sum = 0;
    for (int d = lane % lanes * W; d < p.D && t < p.T_q; d += lanes * W) {
      const Vec<S, W> x = load_some<W>(out.head(b, h, p.D) + t * out.row + d, p.D - d, vector);
      const Vec<S, W> y = load_some<W>(dout.head(b, h, p.D) + t * dout.row + d, p.D - d, vector);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sum += x.wide(i) * y.wide(i);
    }
    sum = warp_reduce(sum, Add(), lanes);
    sum = __shfl_sync(0xffffffffU, sum, lane % rows * lanes);  // of row begin + lane % rows
    if (lane / rows == begin / rows) mine = sum;
  }
  if (lane < kDeltaRows && first + lane < p.T_q) delta[(b * p.H + h) * p.T_q + first + lane] = mine;
}

/// A warp for each tile of 32 queries.
__global__ void __launch_bounds__(kThreads) query_tile_keys_kernel(Problem p, int2* keys) {
  static_assert(kQueryTile == 32);
  const int tiles = (p.T_q + kQueryTile - 1) / kQueryTile;
  const int64_t tile = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (tile >= int64_t{p.B} * tiles) return;
  const int lane = threadIdx.x % 32;
  const KeyRange seen = key_range(p, tile / tiles, static_cast<int>(tile % tiles) * kQueryTile + lane);
  const bool any = seen.first <= seen.last;
  const int smallest = __reduce_min_sync(0xffffffffU, any ? seen.first : p.T_kv);
  const int largest = __reduce_max_sync(0xffffffffU, any ? seen.first : 0);
  if (lane == 0) keys[tile] = make_int2(smallest, largest);
}

}  // namespace

template <typename S>
void delta(const Problem& p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta, Stream& stream) {
  int lanes = 32 / kDeltaRows;
  while (lanes < 32 && lanes * kWidth<S> < p.D) lanes *= 2;
  const Launch launch{.name = "attention_delta",
                      .grid = dim3(blocks_for(int64_t{p.B} * p.H * blocks_for(p.T_q, kDeltaRows), kThreads / 32)),
                      .block = dim3(kThreads)};
  run_kernel(stream, launch, delta_kernel<S>, p, out, dout, delta, lanes);
}
template void delta(const Problem&, HeadRows<const BF16>, HeadRows<const BF16>, float*, Stream&);
template void delta(const Problem&, HeadRows<const float>, HeadRows<const float>, float*, Stream&);
template void delta(const Problem&, HeadRows<const double>, HeadRows<const double>, double*, Stream&);

void query_tile_keys(const Problem& p, int2* keys, Stream& stream) {
  const int64_t tiles = int64_t{p.B} * ((p.T_q + kQueryTile - 1) / kQueryTile);
  const Launch launch{
      .name = "attention_query_tile_keys", .grid = dim3(blocks_for(tiles, kThreads / 32)), .block = dim3(kThreads)};
  run_kernel(stream, launch, query_tile_keys_kernel, p, keys);
}

}  // namespace ashlar::ASHLAR_DEV::attention
