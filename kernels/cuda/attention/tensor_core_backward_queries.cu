// Attention backward on tensor cores: the pass that computes dq. With P the probabilities, recomputed from the scores
// and lse, M the dropout factors and delta = sum_d out dout:
//   dS = P (M dout v^T - delta)      dq = scale dS k
// Dao 2023 (arXiv:2307.08691), algorithm 2, the sum over keys of line 15. In the paper one loop computes dq, dk and dv,
// and atomics sum dq in any order. Here dq has a separate loop, so that every sum has a fixed order. This takes 7
// products for a pair of tiles instead of 5.
// One block processes a tile of queries of one sample and one query head; each warp has different queries. The block
//   1. finds the range of key tiles that at least one of its queries sees;
//   2. starts asynchronous copies to shared memory of q, dout and the first tile of k and v; loads lse and delta;
//   3. for each tile of keys, waits for the copy of the tile, starts the copy of the next tile to the other half of the
//      buffer, and
//      a. computes s = q k^T and dout v^T;
//      b. applies the soft cap, ALiBi and T5's bias; computes P = exp(s - lse), 0 where a query does not see a key;
//         applies dropout; computes dS and rounds it to bf16;
//      c. adds dq += dS k;
//   4. multiplies dq by scale and stores or adds it, rounded once.

#include "kernels/cuda/attention/dropout.h"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/dev/fragments.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

template <int kWidth, int kRowTilesOfWarp, int kKeysOfTile>
struct QueriesPlan {
  static constexpr int kD = kWidth;
  static constexpr int kRowTiles = kRowTilesOfWarp;
  static constexpr int kKeys = kKeysOfTile;
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / 32 * 16 * kRowTiles;
  static constexpr int kStage = 2 * Tile<kD>::elements(kKeys);
  static constexpr int64_t kSharedBytes = 2 * (Tile<kD>::elements(kRows) + kStage) * int64_t{sizeof(BF16)};
};

/// With kChanges scores may have a soft cap, ALiBi or T5's bias, and dropout is a run-time option.
template <typename Plan, bool kDropout, bool kChanges>
__global__ void __launch_bounds__(Plan::kThreads) queries_kernel(Problem p, BackwardArrays<BF16> arrays) {
  constexpr int kD = Plan::kD, kKeys = Plan::kKeys, kRowTiles = Plan::kRowTiles, kColumns = kKeys / 8;
  ASHLAR_DYNAMIC_SHARED(BF16, shared);
  const Lane lane;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  const int64_t b = blockIdx.z, h = blockIdx.y, g = h / p.group();
  // Blocks of late queries start first, since these queries see the most keys.
  const int t = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Plan::kRows;

  // 1. the visible tiles
  const TileRange tiles = visible_tiles<kKeys>(p.mask, b, t, min(t + Plan::kRows, p.T_q));

  // 2. start the first copies
  const Tile<kD> q_tile(shared), dout_tile(shared + Tile<kD>::elements(Plan::kRows));
  BF16* const stages = shared + 2 * Tile<kD>::elements(Plan::kRows);
  const BF16 *const k = arrays.k.head(b, g, p.D), *const v = arrays.v.head(b, g, p.D);
  const auto load_keys = [&](int tile) {
    BF16* const stage = stages + tile % 2 * Plan::kStage;
    load_tile<kKeys, Plan::kThreads>(Tile<kD>(stage), k, arrays.k.row, arrays.k.align, tile * kKeys, p.T_kv, p.D);
    load_tile<kKeys, Plan::kThreads>(Tile<kD>(stage + Tile<kD>::elements(kKeys)), v, arrays.v.row, arrays.v.align,
                                     tile * kKeys, p.T_kv, p.D);
  };
  if (tiles.begin < tiles.end) {
    load_tile<Plan::kRows, Plan::kThreads>(q_tile, arrays.q.head(b, h, p.D), arrays.q.row, arrays.q.align, t, p.T_q,
                                           p.D);
    load_tile<Plan::kRows, Plan::kThreads>(dout_tile, arrays.dout.head(b, h, p.D), arrays.dout.row, arrays.dout.align,
                                           t, p.T_q, p.D);
    load_keys(tiles.begin);
    cp_async_commit_group();
  }
  KeyRange seen[kRowTiles][2];
  float lse_log2[kRowTiles][2], delta[kRowTiles][2];
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    ASHLAR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = t + warp_row + 16 * m + 8 * half + lane.g;
      const int64_t at = (b * p.H + h) * p.T_q + row;
      seen[m][half] = p.mask.range(b, row);
      lse_log2[m][half] = row < p.T_q ? arrays.lse[at] * kLog2E : 0.0F;
      delta[m][half] = row < p.T_q ? arrays.delta[at] : 0.0F;
    }
  }

  const uint32_t flip = arrays.scores.scale < 0 ? 0x80008000U : 0U;  // a negative scale negates the queries
  const float scale = fabsf(static_cast<float>(arrays.scores.scale)), scale_log2 = scale * kLog2E;
  const auto keep_scale = static_cast<float>(p.dropout.keep_scale);
  const int warp_last_key = p.mask.last_key(b, min(t + warp_row + 16 * kRowTiles, p.T_q) - 1);
  const bool drops = kDropout && (!kChanges || p.dropout.scalars != nullptr);
  HeadDropout dropout;
  if (drops) dropout = HeadDropout(p, b, h);
  HeadScores<float> change;
  if constexpr (kChanges) change = HeadScores<float>(arrays.scores, h, p.mask.diagonal);
  Accumulator<kD / 8> dq[kRowTiles];
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) clear<kD / 8>(dq[m]);

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

    // a. scores and dout v^T
    Accumulator<kColumns> s[kRowTiles], ds[kRowTiles];
    multiply_rows<kRowTiles, kColumns>(s, q_tile, warp_row, k_tile, flip, lane);
    multiply_rows<kRowTiles, kColumns>(ds, dout_tile, warp_row, v_tile, 0, lane);

    // b. probabilities and the gradients of the scores
    ASHLAR_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      KeptKeys<kColumns> kept;
      if (drops) kept = KeptKeys<kColumns>(dropout, t + warp_row + 16 * m, j, lane);
      ASHLAR_UNROLL
      for (int half = 0; half < 2; ++half) {
        const KeyRange range = seen[m][half];
        const bool open = range.first <= j && j + kKeys - 1 <= range.last;
        ASHLAR_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          ASHLAR_UNROLL
          for (int i = 0; i < 2; ++i) {
            float probability, derivative = 1;
            if constexpr (kChanges) {
              const float score =
                  change.apply<true>(scale * s[m][n][2 * half + i], t + warp_row + 16 * m + 8 * half + lane.g,
                                     j + 8 * n + 2 * lane.q + i, derivative);
              probability = ex2(fmaf(score, kLog2E, -lse_log2[m][half]));
            } else {
              probability = ex2(fmaf(s[m][n][2 * half + i], scale_log2, -lse_log2[m][half]));
            }
            float& x = ds[m][n][2 * half + i];
            if (drops) x = kept.contains(half, n, i) ? x * keep_scale : 0.0F;
            x = probability * (x - delta[m][half]);
            if constexpr (kChanges) x *= derivative;
          }
        }
        if (open) continue;
        ASHLAR_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          ASHLAR_UNROLL
          for (int i = 0; i < 2; ++i) {
            if (!range.contains(j + 8 * n + 2 * lane.q + i)) ds[m][n][2 * half + i] = 0;
          }
        }
      }
    }

    // c. dq
    add_weighted_rows<kRowTiles, kColumns, kD / 8>(dq, ds, k_tile, 0, lane);
  }

  // 4. store dq
  const auto signed_scale = static_cast<float>(arrays.scores.scale);
  store_rows<kRowTiles, kD / 8>(
      dq,
      [&](int) {
        return float2{signed_scale, signed_scale};
      },
      q_tile, warp_row,
      {.data = arrays.dq.head(b, h, p.D),
       .stride = arrays.dq.row,
       .align = arrays.dq.align,
       .row = t + warp_row,
       .limit = p.T_q,
       .D = p.D,
       .accumulate = arrays.accumulate != 0},
      lane);
}

struct QueriesKernel {
  template <typename Plan, bool kDropout, bool kChanges>
  static void launch(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream) {
    const Launch launch{.name = "attention_backward_queries",
                        .grid = dim3(blocks_for(p.T_q, Plan::kRows), p.H, p.B),
                        .block = dim3(Plan::kThreads),
                        .shared_bytes = Plan::kSharedBytes};
    run_kernel(stream, launch, queries_kernel<Plan, kDropout, kChanges>, p, arrays);
  }
};

}  // namespace

void backward_queries_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream) {
  if (p.D <= 16)
    return launch_variant<QueriesKernel, QueriesPlan<16, 2, 64>, QueriesPlan<16, 2, 64>, QueriesPlan<16, 1, 64>>(
        p, arrays, stream);
  if (p.D <= 32)
    return launch_variant<QueriesKernel, QueriesPlan<32, 2, 64>, QueriesPlan<32, 2, 64>, QueriesPlan<32, 1, 64>>(
        p, arrays, stream);
  if (p.D <= 64) return launch_variant<QueriesKernel, QueriesPlan<64, 2, 32>>(p, arrays, stream);
  if (p.D <= 96) return launch_variant<QueriesKernel, QueriesPlan<96, 1, 64>>(p, arrays, stream);
  if (p.D <= 128) return launch_variant<QueriesKernel, QueriesPlan<128, 1, 64>>(p, arrays, stream);
  return launch_variant<QueriesKernel, QueriesPlan<256, 1, 32>, QueriesPlan<256, 1, 16>>(p, arrays, stream);
}

}  // namespace ashlar::ASHLAR_DEV::attention
