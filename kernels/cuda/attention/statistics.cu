// Values that are computed before the passes of attention, each by a small kernel:
//   - delta[b, h, t] = sum_d out dout, which equals sum_j P M dout v^T (Dao 2023, arXiv:2307.08691, algorithm 2,
//     line 4)
//   - the gradient of the sinks from delta: - sum_{b,t} exp(sink - lse) delta, since a sink has no value vector
//   - the first and the last key that each query sees, by its document, window and chunk, and the extremes of both in
//     each tile of queries, so that a block of keys can skip tiles of queries that see none of its keys

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

constexpr int kDeltaRows = 8;  // number of rows of a warp: their fp32 sums fill a memory sector of 32 bytes

/// A warp processes the rows of 8 adjacent queries of one head. `lanes` (4 to 32) lanes process one row, and the warp
/// processes 32 / lanes rows at a time.
template <typename S>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(Problem p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta, int lanes) {
  using A = AccumulateOf<S>;
  constexpr int W = kWidth<S>;
  const int groups = (p.T_q + kDeltaRows - 1) / kDeltaRows;
  const int64_t warp = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (warp >= int64_t{p.B} * p.H * groups) return;
  const int lane = threadIdx.x % 32, rows = 32 / lanes;
  const int64_t h = warp % p.H, b = warp / p.H / groups;  // adjacent warps read adjacent heads of a row
  const int first = static_cast<int>(warp / p.H % groups) * kDeltaRows;
  const bool vector = out.align == 16 && dout.align == 16;
  A mine = 0;
  for (int begin = 0; begin < kDeltaRows; begin += rows) {
    const int t = first + begin + lane / lanes;
    A sum = 0;
    for (int d = lane % lanes * W; d < p.D_v && t < p.T_q; d += lanes * W) {
      const Vec<S, W> x = load_some<W>(out.head(b, h, p.D_v) + t * out.row + d, p.D_v - d, vector);
      const Vec<S, W> y = load_some<W>(dout.head(b, h, p.D_v) + t * dout.row + d, p.D_v - d, vector);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sum += x.wide(i) * y.wide(i);
    }
    sum = warp_reduce(sum, Add(), lanes);
    sum = __shfl_sync(0xffffffffU, sum, lane % rows * lanes);  // the sum of row begin + lane % rows
    if (lane / rows == begin / rows) mine = sum;
  }
  if (lane < kDeltaRows && first + lane < p.T_q) delta[(b * p.H + h) * p.T_q + first + lane] = mine;
}

/// Each block processes one head. A thread adds every kThreads-th query; then the sums of the threads are added in a
/// fixed order.
template <typename S>
__global__ void __launch_bounds__(kThreads)
    sink_gradient_kernel(Problem p, BackwardArrays<S> arrays, AccumulateOf<S>* dsinks, bool accumulate) {
  using A = AccumulateOf<S>;
  ASHLAR_SHARED(A, sums, [kThreads / 32]);
  const int h = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const A sink = widen(arrays.scores.sinks[h]);
  A sum = 0;
  for (int64_t n = thread; n < int64_t{p.B} * p.T_q; n += kThreads) {
    const int64_t at = (n / p.T_q * p.H + h) * p.T_q + n % p.T_q;
    sum -= exponential(sink - arrays.lse[at]) * arrays.delta[at];
  }
  sum = warp_reduce(sum, Add(), 32);
  if (thread % 32 == 0) sums[thread / 32] = sum;
  __syncthreads();
  if (thread != 0) return;
  A total = accumulate ? dsinks[h] : A{0};
  for (int w = 0; w < kThreads / 32; ++w) total += sums[w];
  dsinks[h] = total;
}

/// A warp processes one tile of 32 queries, each lane one query.
__global__ void __launch_bounds__(kThreads)
    key_ranges_kernel(Problem p, int* first_keys, int* last_keys, int4* tile_keys) {
  static_assert(kQueryTile == 32);
  const int tiles = (p.T_q + kQueryTile - 1) / kQueryTile;
  const int64_t tile = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;
  if (tile >= int64_t{p.B} * tiles) return;
  const int lane = threadIdx.x % 32, t = static_cast<int>(tile % tiles) * kQueryTile + lane;
  const int64_t b = tile / tiles;
  KeyRange keys{p.T_kv, -1};
  if (t < p.T_q) {
    keys = p.mask.find_range(b, t);
    first_keys[b * p.T_q + t] = keys.first;
    if (last_keys != nullptr) last_keys[b * p.T_q + t] = keys.last;
  }
  if (tile_keys == nullptr) return;
  const int smallest = __reduce_min_sync(0xffffffffU, keys.first <= keys.last ? keys.first : p.T_kv);
  const int largest = __reduce_max_sync(0xffffffffU, t < p.T_q ? keys.first : 0);
  const int largest_last = __reduce_max_sync(0xffffffffU, keys.last);
  const int smallest_last = __reduce_min_sync(0xffffffffU, t < p.T_q ? keys.last : p.T_kv);
  if (lane == 0) tile_keys[tile] = make_int4(smallest, largest, largest_last, smallest_last);
}

}  // namespace

template <typename S>
void delta(const Problem& p, HeadRows<const S> out, HeadRows<const S> dout, AccumulateOf<S>* delta, Stream& stream) {
  int lanes = 32 / kDeltaRows;
  while (lanes < 32 && lanes * kWidth<S> < p.D_v) lanes *= 2;
  const Launch launch{.name = "attention_delta",
                      .grid = dim3(blocks_for(int64_t{p.B} * p.H * blocks_for(p.T_q, kDeltaRows), kThreads / 32)),
                      .block = dim3(kThreads)};
  run_kernel(stream, launch, delta_kernel<S>, p, out, dout, delta, lanes);
}
template void delta(const Problem&, HeadRows<const BF16>, HeadRows<const BF16>, float*, Stream&);
template void delta(const Problem&, HeadRows<const float>, HeadRows<const float>, float*, Stream&);
template void delta(const Problem&, HeadRows<const double>, HeadRows<const double>, double*, Stream&);

template <typename S>
void sink_gradient(const Problem& p, const BackwardArrays<S>& arrays, AccumulateOf<S>* dsinks, bool accumulate,
                   Stream& stream) {
  const Launch launch{.name = "attention_sink_gradient", .grid = dim3(p.H), .block = dim3(kThreads)};
  run_kernel(stream, launch, sink_gradient_kernel<S>, p, arrays, dsinks, accumulate);
}
template void sink_gradient(const Problem&, const BackwardArrays<BF16>&, float*, bool, Stream&);
template void sink_gradient(const Problem&, const BackwardArrays<float>&, float*, bool, Stream&);
template void sink_gradient(const Problem&, const BackwardArrays<double>&, double*, bool, Stream&);

void key_ranges(const Problem& p, int* first_keys, int* last_keys, int4* tile_keys, Stream& stream) {
  const int64_t tiles = int64_t{p.B} * ((p.T_q + kQueryTile - 1) / kQueryTile);
  const Launch launch{
      .name = "attention_key_ranges", .grid = dim3(blocks_for(tiles, kThreads / 32)), .block = dim3(kThreads)};
  run_kernel(stream, launch, key_ranges_kernel, p, first_keys, last_keys, tile_keys);
}

}  // namespace ashlar::ASHLAR_DEV::attention
