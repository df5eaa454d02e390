// Attention forward on tensor cores, bf16 storage, fp32 softmax:
//   s = scale q k^T      m = max_j s      l = sum_j exp(s - m)      out = sum_j exp(s - m) M v / l      lse = m + log l
// where M are the dropout factors. Dao 2023 (arXiv:2307.08691), algorithm 1. No T x T matrix is stored. A block reads
// its queries once and each visible tile of keys and values once. Speed is bound by tensor cores, then by exp2.
// One block processes a tile of queries of one sample and one query head; each warp has different queries. The block
//   1. finds the range of key tiles that at least one of its queries sees;
//   2. starts asynchronous copies to shared memory of the queries and the first tile of keys and values;
//   3. for each tile of keys, waits for the copy of the tile, starts the copy of the next tile to the other half of the
//      buffer, and
//      a. computes s = q k^T, from shared memory to registers;
//      b. applies the soft cap, ALiBi and T5's bias; scores of keys that a query does not see become -inf;
//      c. online softmax: finds the new maximum, applies exp2, rescales l and out by exp2(old maximum - new maximum);
//      d. dropout: sets some of the probabilities p to zero, after they are summed;
//      e. adds out += p v with p rounded to bf16;
//   4. stores out / l and lse, both with the sink if there is one. A query that sees no key gets out 0 and, without a
//      sink, lse -inf.

#include "kernels/cuda/attention/dropout.h"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/dev/fragments.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

template <int kWidth, int kRowTilesOfWarp, int kKeysOfTile>
struct ForwardPlan {
  static constexpr int kD = kWidth;                  ///< number of columns of a tile: D rounded up
  static constexpr int kRowTiles = kRowTilesOfWarp;  ///< number of groups of 16 queries that a warp processes
  static constexpr int kKeys = kKeysOfTile;          ///< number of keys of a tile
  static constexpr int kThreads = 128;
  /// Minimum number of blocks per SM (__launch_bounds__); 0 leaves the choice to ptxas. For 64 columns it is 2: a third
  /// block would leave each thread so few registers that they would spill.
  static constexpr int kBlocks = kD == 64 ? 2 : 0;
  static constexpr int kRows = kThreads / 32 * 16 * kRowTiles;  ///< number of queries of a block
  static constexpr int kStage = 2 * Tile<kD>::elements(kKeys);  ///< elements of a tile of keys and a tile of values
  static constexpr int64_t kSharedBytes = (Tile<kD>::elements(kRows) + 2 * kStage) * int64_t{sizeof(BF16)};
};

/// The online softmax of rows g and g + 8, which are the rows of this lane.
struct OnlineSoftmax {
  float max[2] = {-INFINITY, -INFINITY};  ///< maximum of the scores so far, before scaling
  float sum[2] = {0, 0};                  ///< sum of the exponentials in this lane's columns

  /// Replaces scores by exp(scale * (score - max)), with scale > 0, and updates max and sum. Returns the factors, for
  /// rows g and g + 8, by which the caller must multiply the output accumulated so far.
  template <int kColumns>
  __device__ float2 apply(Accumulator<kColumns>& s, float scale_log2) {
    float rescale[2];
    ASHLAR_UNROLL
    for (int half = 0; half < 2; ++half) {
      float largest = max[half];
      ASHLAR_UNROLL
      for (int n = 0; n < kColumns; ++n) largest = fmaxf(largest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
      const float shift = largest == -INFINITY ? 0.0F : largest * scale_log2;  // no key yet: exp2(-inf - 0) is 0
      rescale[half] = ex2(fmaf(max[half], scale_log2, -shift));
      max[half] = largest;
      sum[half] *= rescale[half];
      ASHLAR_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        ASHLAR_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[n][i] = ex2(fmaf(s[n][i], scale_log2, -shift));
          sum[half] += s[n][i];
        }
      }
    }
    return {rescale[0], rescale[1]};
  }
};

/// With kChanges scores may have a soft cap, ALiBi or T5's bias, last keys may be listed (KeyMask::last_keys), and
/// dropout is a run-time option.
template <typename Plan, bool kDropout, bool kChanges>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks) forward_kernel(Problem p, ForwardArrays<BF16> arrays) {
  constexpr int kD = Plan::kD, kKeys = Plan::kKeys, kRowTiles = Plan::kRowTiles, kColumns = kKeys / 8;
  ASHLAR_DYNAMIC_SHARED(BF16, shared);
  const Lane lane;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / p.group();
  // Blocks of late queries start first, since these queries see the most keys.
  const int t = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Plan::kRows;

  // 1. the visible tiles
  const TileRange tiles = visible_tiles<kKeys>(p.mask, b, t, min(t + Plan::kRows, p.T_q));
  // The first key that each row sees. The last key is computed again for each tile: in registers it would spill.
  int first_seen[kRowTiles][2];
  const int row = t + warp_row + lane.g;
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    ASHLAR_UNROLL
    for (int half = 0; half < 2; ++half) first_seen[m][half] = p.mask.range(b, row + 16 * m + 8 * half).first;
  }
  const auto last_seen = [&](int m, int half) {
    const int at = row + 16 * m + 8 * half;
    return kChanges ? p.mask.last_key(b, min(at, p.T_q - 1)) : p.mask.last_by_position(at);
  };

  // 2. start the first copies
  const Tile<kD> q_tile(shared);
  BF16* const stages = shared + Tile<kD>::elements(Plan::kRows);
  const BF16 *const q = arrays.q.head(b, h, p.D), *const k = arrays.k.head(b, g, p.D),
                    *const v = arrays.v.head(b, g, p.D);
  const auto load_keys = [&](int tile) {
    BF16* const stage = stages + tile % 2 * Plan::kStage;
    load_tile<kKeys, Plan::kThreads>(Tile<kD>(stage), k, arrays.k.row, arrays.k.align, tile * kKeys, p.T_kv, p.D);
    load_tile<kKeys, Plan::kThreads>(Tile<kD>(stage + Tile<kD>::elements(kKeys)), v, arrays.v.row, arrays.v.align,
                                     tile * kKeys, p.T_kv, p.D);
  };
  if (tiles.begin < tiles.end) {
    load_tile<Plan::kRows, Plan::kThreads>(q_tile, q, arrays.q.row, arrays.q.align, t, p.T_q, p.D);
    load_keys(tiles.begin);
    cp_async_commit_group();
  }

  // A negative scale negates the queries. A scale of zero is replaced by 1e-30: 0 * -inf would be NaN.
  const uint32_t flip = arrays.scores.scale < 0 ? 0x80008000U : 0U;
  const float scale = fmaxf(fabsf(static_cast<float>(arrays.scores.scale)), 1e-30F);
  const int warp_last_key = p.mask.last_key(b, min(t + warp_row + 16 * kRowTiles, p.T_q) - 1);
  const bool drops = kDropout && (!kChanges || p.dropout.scalars != nullptr);
  HeadDropout dropout;
  if (drops) dropout = HeadDropout(p, b, h);
  HeadScores<float> change;
  if constexpr (kChanges) change = HeadScores<float>(arrays.scores, h, p.mask.diagonal);
  const float softmax_scale = kChanges ? 1.0F : scale;  // with kChanges the scores are already scaled
  Accumulator<kD / 8> out[kRowTiles];
  OnlineSoftmax softmax[kRowTiles];
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) clear<kD / 8>(out[m]);

  // 3. loop over tiles of keys
  for (int tile = tiles.begin; tile < tiles.end; ++tile) {
    cp_async_wait_group<0>();
    __syncthreads();  // the tile is complete, and no thread reads the previous one, which is overwritten next
    if (tile + 1 < tiles.end) load_keys(tile + 1);
    cp_async_commit_group();
    const Tile<kD> k_tile(stages + tile % 2 * Plan::kStage);
    const Tile<kD> v_tile(stages + tile % 2 * Plan::kStage + Tile<kD>::elements(kKeys));
    const int j = tile * kKeys;
    if (j > warp_last_key) continue;  // this warp's queries see no key from j on

    // a. scores
    Accumulator<kColumns> s[kRowTiles];
    multiply_rows<kRowTiles, kColumns>(s, q_tile, warp_row, k_tile, flip, lane);
    ASHLAR_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      if constexpr (kChanges) {
        ASHLAR_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          ASHLAR_UNROLL
          for (int i = 0; i < 4; ++i) {
            s[m][n][i] = change.apply<true>(scale * s[m][n][i], t + warp_row + 16 * m + i / 2 * 8 + lane.g,
                                            j + 8 * n + 2 * lane.q + i % 2);
          }
        }
      }
      // b. the mask
      ASHLAR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const KeyRange range{first_seen[m][half], last_seen(m, half)};
        if (range.first <= j && j + kKeys - 1 <= range.last) continue;
        ASHLAR_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          ASHLAR_UNROLL
          for (int i = 0; i < 2; ++i) {
            if (!range.contains(j + 8 * n + 2 * lane.q + i)) s[m][n][2 * half + i] = -INFINITY;
          }
        }
      }
      // c. online softmax
      const float2 rescale = softmax[m].apply(s[m], softmax_scale * kLog2E);
      ASHLAR_UNROLL
      for (int n = 0; n < kD / 8; ++n) {
        out[m][n][0] *= rescale.x;
        out[m][n][1] *= rescale.x;
        out[m][n][2] *= rescale.y;
        out[m][n][3] *= rescale.y;
      }
      // d. dropout
      if (drops) {
        const KeptKeys<kColumns> kept(dropout, t + warp_row + 16 * m, j, lane);
        ASHLAR_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          ASHLAR_UNROLL
          for (int i = 0; i < 4; ++i) s[m][n][i] = kept.contains(i / 2, n, i % 2) ? s[m][n][i] : 0.0F;
        }
      }
    }
    // e. out += p v
    add_weighted_rows<kRowTiles, kColumns, kD / 8>(out, s, v_tile, 0, lane);
  }

  // 4. store out and lse
  const auto finish = [&](int m) {
    float factor[2];
    ASHLAR_UNROLL
    for (int half = 0; half < 2; ++half) {
      float sum = softmax[m].sum[half];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      const int at = row + 16 * m + 8 * half;
      const bool empty = first_seen[m][half] > last_seen(m, half);
      factor[half] = empty ? 0.0F : static_cast<float>(p.dropout.keep_scale) / sum;
      float lse = empty ? -INFINITY : fmaf(softmax[m].max[half], softmax_scale, logarithm(sum));
      if (arrays.scores.sinks != nullptr) factor[half] *= join_sink(widen(arrays.scores.sinks[h]), lse);
      if (lane.q == 0 && at < p.T_q) arrays.lse[(b * p.H + h) * p.T_q + at] = lse;
    }
    return float2{factor[0], factor[1]};
  };
  store_rows<kRowTiles, kD / 8>(out, finish, q_tile, warp_row,
                                {.data = arrays.out.head(b, h, p.D),
                                 .stride = arrays.out.row,
                                 .align = arrays.out.align,
                                 .row = t + warp_row,
                                 .limit = p.T_q,
                                 .D = p.D},
                                lane);
}

struct ForwardKernel {
  template <typename Plan, bool kDropout, bool kChanges>
  static void launch(const Problem& p, const ForwardArrays<BF16>& arrays, Stream& stream) {
    const Launch launch{.name = "attention_forward",
                        .grid = dim3(blocks_for(p.T_q, Plan::kRows), p.H, p.B),
                        .block = dim3(Plan::kThreads),
                        .shared_bytes = Plan::kSharedBytes};
    run_kernel(stream, launch, forward_kernel<Plan, kDropout, kChanges>, p, arrays);
  }
};

}  // namespace

void forward_bf16(const Problem& p, const ForwardArrays<BF16>& arrays, Stream& stream) {
  if (p.D <= 16) return launch_variant<ForwardKernel, ForwardPlan<16, 2, 64>>(p, arrays, stream);
  if (p.D <= 32) return launch_variant<ForwardKernel, ForwardPlan<32, 2, 64>>(p, arrays, stream);
  if (p.D <= 64)
    return launch_variant<ForwardKernel, ForwardPlan<64, 2, 64>, ForwardPlan<64, 2, 32>>(p, arrays, stream);
  if (p.D <= 96)
    return launch_variant<ForwardKernel, ForwardPlan<96, 2, 32>, ForwardPlan<96, 1, 64>>(p, arrays, stream);
  if (p.D <= 128)
    return launch_variant<ForwardKernel, ForwardPlan<128, 2, 32>, ForwardPlan<128, 2, 32>, ForwardPlan<128, 1, 32>>(
        p, arrays, stream);
  return launch_variant<ForwardKernel, ForwardPlan<256, 1, 32>>(p, arrays, stream);
}

}  // namespace ashlar::ASHLAR_DEV::attention
