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

/// A warp for each row (b, t, h), heads next to each other as they lie in memory.
template <typename S>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(Problem p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta) {
  using A = AccumulateOf<S>;
  constexpr int W = kWidth<S>;
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (row >= int64_t{p.B} * p.T_q * p.H) return;
  const int lane = threadIdx.x % 32;
  const int64_t h = row % p.H, t = row / p.H % p.T_q, b = row / p.H / p.T_q;
  const S *const x = out.head(b, h, p.D) + t * out.row, *const y = dout.head(b, h, p.D) + t * dout.row;
  const bool vector = out.align == 16 && dout.align == 16;
  A sum = 0;
  for (int d = lane * W; d < p.D; d += 32 * W) {
    const Vec<S, W> u = load_some<W>(x + d, p.D - d, vector), v = load_some<W>(y + d, p.D - d, vector);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) sum += u.wide(i) * v.wide(i);
  }
  sum = warp_reduce(sum, Add());
  if (lane == 0) delta[(b * p.H + h) * p.T_q + t] = sum;
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
  const Launch launch{.name = "attention_delta",
                      .grid = dim3(blocks_for(int64_t{p.B} * p.T_q * p.H, kThreads / 32)),
                      .block = dim3(kThreads)};
  run_kernel(stream, launch, delta_kernel<S>, p, out, dout, delta);
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
