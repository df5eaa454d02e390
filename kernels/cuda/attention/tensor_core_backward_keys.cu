// Attention backward on tensor cores: the pass that computes dk and dv. With P the probabilities, recomputed from the
// scores and lse, M the dropout factors and delta = sum_d out dout:
//   dv = (P M)^T dout      dS = P (M dout v^T - delta)      dk = scale dS^T q
// Dao 2023 (arXiv:2307.08691), algorithm 2. Scores are computed transposed, [key, query], so that P^T and dS^T can stay
// in registers as left factors of the next product. Sums run over the query heads of the KV head, then over the queries
// of each head, both ascending.
// One block processes a tile of keys of one sample and one KV head; each warp has different keys. The block
//   1. finds the query tiles that see at least one of its keys;
//   2. starts asynchronous copies to shared memory of k, v and the first tile of q, dout, lse and delta;
//   3. for each query head and tile of queries, waits for the copy of the tile, starts the copy of the next tile to the
//      other half of the buffer, and
//      a. computes s = k q^T and v dout^T;
//      b. applies the soft cap, ALiBi and T5's bias; computes P^T = exp(s - lse), 0 where a query does not see a key;
//         applies dropout; computes dS^T; rounds both to bf16;
//      c. adds dv += (P M)^T dout and dk += dS^T q;
//   4. multiplies dk by scale and stores or adds dk and dv, rounded once.
// If a row of dk and dv has more than 128 columns, two blocks do steps 3c and 4 for half of the columns each.

#include "kernels/cuda/attention/dropout.h"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/dev/fragments.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV::attention {
namespace {

template <int kWidth, int kRowTilesOfWarp, int kQueriesOfTile>
struct KeysPlan {
  static constexpr int kD = kWidth;
  static constexpr int kRowTiles = kRowTilesOfWarp;  ///< number of groups of 16 keys that a warp processes
  static constexpr int kQueries = kQueriesOfTile;    ///< number of queries of a tile
  static constexpr int kThreads = 128;
  static constexpr int kRows = kThreads / 32 * 16 * kRowTiles;  ///< number of keys of a block
  static constexpr int kParts = kD > 128 ? 2 : 1;               ///< number of blocks that share a tile of keys
  static constexpr int kStage = 2 * Tile<kD>::elements(kQueries);
  static constexpr int64_t kSharedBytes =
      2 * (Tile<kD>::elements(kRows) + kStage) * int64_t{sizeof(BF16)} + 4 * kQueries * int64_t{sizeof(float)};
};

/// The query tiles of one block. Index i stands for tile first + i % tiles of the (i / tiles)-th query head of the KV
/// head.
template <typename Plan, bool kListed>
struct QueryTiles {
  int first, tiles, end;
  const int4*
      keys;  ///< tile_keys of this sample (key_ranges in kernels.h); null if no document, window or chunk hides keys
  int num_keys;
  int j, last_key;  ///< first and last key of the block

  __device__ QueryTiles(const Problem& p, const BackwardArrays<BF16>& arrays, int64_t b, int j_first)
      : num_keys((p.T_q + kQueryTile - 1) / kQueryTile), j(j_first), last_key(min(j_first + Plan::kRows, p.T_kv) - 1) {
    first = p.mask.first_query(j) / Plan::kQueries;
    tiles = max(p.mask.last_query(last_key) / Plan::kQueries + 1 - first, 0);
    end = tiles * p.group();
    keys = arrays.tile_keys != nullptr ? arrays.tile_keys + b * num_keys : nullptr;
  }

  __device__ int query(int i) const { return (first + i % tiles) * Plan::kQueries; }
  __device__ int head(int i) const { return i / tiles; }
  /// Returns tile_keys (key_ranges in kernels.h) of the tile of queries: one entry, or several combined.
  __device__ int4 listed(int i) const {
    const int at = query(i) / kQueryTile;
    int4 all = keys[at];
    for (int n = 1; n < Plan::kQueries / kQueryTile && at + n < num_keys; ++n) {
      const int4 more = keys[at + n];
      all = {min(all.x, more.x), max(all.y, more.y), max(all.z, more.z), min(all.w, more.w)};
    }
    return all;
  }
  /// Returns the smallest index >= i of a query tile with a query that may see one of the block's keys; `end` if there
  /// is none.
  __device__ int next(int i) const {
    for (; keys != nullptr && i < end; ++i) {
      const int4 tile = listed(i);
      if (tile.x <= last_key && (!kListed || tile.z >= j)) break;
    }
    return i;
  }
  /// True if every query of the tile, which begins at query t, sees every key of the block.
  __device__ bool open(const KeyMask& mask, int i, int t) const {
    const int end_key = j + Plan::kRows - 1;
    if (keys == nullptr) return end_key <= mask.last_by_position(t);
    const int4 tile = listed(i);
    return tile.y <= j && end_key <= (kListed ? tile.w : mask.last_by_position(t));
  }
};

/// With kChanges scores may have a soft cap, ALiBi or T5's bias, last keys may be listed (KeyMask::last_keys), and
/// dropout is a run-time option.
template <typename Plan, bool kDropout, bool kChanges>
__global__ void __launch_bounds__(Plan::kThreads) keys_kernel(Problem p, BackwardArrays<BF16> arrays) {
  constexpr int kD = Plan::kD, kQueries = Plan::kQueries, kRowTiles = Plan::kRowTiles, kColumns = kQueries / 8;
  constexpr int kWidth = kD / Plan::kParts;  // number of columns of dk and dv that this block computes
  ASHLAR_DYNAMIC_SHARED(BF16, shared);
  const Lane lane;
  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kRowTiles;
  const int64_t b = blockIdx.z, g = blockIdx.y;
  // Blocks of early keys start first, since most queries see these keys.
  const int j = static_cast<int>(blockIdx.x) / Plan::kParts * Plan::kRows;
  const int first_column = static_cast<int>(blockIdx.x) % Plan::kParts * kWidth;

  // 1. the query tiles that see one of the keys
  const QueryTiles<Plan, kChanges> tiles(p, arrays, b, j);

  // 2. start the first copies
  const Tile<kD> k_tile(shared), v_tile(shared + Tile<kD>::elements(Plan::kRows));
  BF16* const stages = shared + 2 * Tile<kD>::elements(Plan::kRows);
  float* const statistics = reinterpret_cast<float*>(stages + 2 * Plan::kStage);  // [2 stages][lse, delta][kQueries]
  const auto load_queries = [&](int i, int stage) {
    BF16* const to = stages + stage * Plan::kStage;
    const int64_t h = g * p.group() + tiles.head(i);
    const int t = tiles.query(i);
    load_tile<kQueries, Plan::kThreads>(Tile<kD>(to), arrays.q.head(b, h, p.D), arrays.q.row, arrays.q.align, t, p.T_q,
                                        p.D);
    load_tile<kQueries, Plan::kThreads>(Tile<kD>(to + Tile<kD>::elements(kQueries)), arrays.dout.head(b, h, p.D),
                                        arrays.dout.row, arrays.dout.align, t, p.T_q, p.D);
    static_assert(2 * kQueries <= Plan::kThreads);
    const int thread = threadIdx.x, row = t + thread % kQueries;
    if (thread >= 2 * kQueries) return;
    const float* const from = (thread < kQueries ? arrays.lse : arrays.delta) + (b * p.H + h) * p.T_q;
    cp_async<4>(shared_address(statistics + stage * 2 * kQueries + thread), row < p.T_q ? from + row : from,
                row < p.T_q ? 4 : 0);
  };
  int i = tiles.next(0);
  if (i < tiles.end) {
    load_tile<Plan::kRows, Plan::kThreads>(k_tile, arrays.k.head(b, g, p.D), arrays.k.row, arrays.k.align, j, p.T_kv,
                                           p.D);
    load_tile<Plan::kRows, Plan::kThreads>(v_tile, arrays.v.head(b, g, p.D), arrays.v.row, arrays.v.align, j, p.T_kv,
                                           p.D);
    load_queries(i, 0);
    cp_async_commit_group();
  }

  const uint32_t flip = arrays.scores.scale < 0 ? 0x80008000U : 0U;  // a negative scale negates the keys
  const float scale = fabsf(static_cast<float>(arrays.scores.scale)), scale_log2 = scale * kLog2E;
  const bool drops = kDropout && (!kChanges || p.dropout.scalars != nullptr);
  const auto keep_scale = static_cast<float>(p.dropout.keep_scale);
  Accumulator<kWidth / 8> dk[kRowTiles], dv[kRowTiles];
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    clear<kWidth / 8>(dk[m]);
    clear<kWidth / 8>(dv[m]);
  }

  // 3. loop over query heads and tiles of queries
  for (int stage = 0; i < tiles.end; stage ^= 1) {
    cp_async_wait_group<0>();
    __syncthreads();  // the tile is complete, and no thread reads the previous one, which is overwritten next
    const int now = i;
    i = tiles.next(now + 1);
    if (i < tiles.end) load_queries(i, stage ^ 1);
    cp_async_commit_group();
    const Tile<kD> q_tile(stages + stage * Plan::kStage);
    const Tile<kD> dout_tile(stages + stage * Plan::kStage + Tile<kD>::elements(kQueries));
    const float* const lse = statistics + stage * 2 * kQueries;
    const float* const delta = lse + kQueries;
    const int t = tiles.query(now);

    // a. scores and dout v^T, both [key, query]
    Accumulator<kColumns> s[kRowTiles], ds[kRowTiles];
    multiply_rows<kRowTiles, kColumns>(s, k_tile, warp_row, q_tile, flip, lane);
    multiply_rows<kRowTiles, kColumns>(ds, v_tile, warp_row, dout_tile, 0, lane);

    // b. probabilities and the gradients of the scores
    const bool open = tiles.open(p.mask, now, t);
    KeptQueries<kRowTiles, kColumns> kept;
    HeadScores<float> change;
    if constexpr (kChanges) change = HeadScores<float>(arrays.scores, g * p.group() + tiles.head(now), p.mask.diagonal);
    if (drops) {
      const HeadDropout dropout(p, b, g * p.group() + tiles.head(now));
      kept = KeptQueries<kRowTiles, kColumns>(dropout, t, j + warp_row, lane);
    }
    ASHLAR_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      ASHLAR_UNROLL
      for (int x = 0; x < 2; ++x) {
        const int column = 8 * n + 2 * lane.q + x;
        const float lse_log2 = lse[column] * kLog2E;
        uint32_t keep = 0;
        if (drops) keep = kept.column(n, x, lane);
        ASHLAR_UNROLL
        for (int m = 0; m < kRowTiles; ++m) {
          ASHLAR_UNROLL
          for (int half = 0; half < 2; ++half) {
            float& probability = s[m][n][2 * half + x];
            float& gradient = ds[m][n][2 * half + x];
            const int key = 16 * m + 8 * half;  // index of this lane's key in the warp's rows, minus g
            float derivative = 1;
            if constexpr (kChanges) {
              probability =
                  change.apply<true>(scale * probability, t + column, j + warp_row + lane.g + key, derivative);
              probability = ex2(fmaf(probability, kLog2E, -lse_log2));
            } else {
              probability = ex2(fmaf(probability, scale_log2, -lse_log2));
            }
            if (drops) {
              const float factor = (keep >> key & 1U) != 0 ? keep_scale : 0.0F;
              gradient = probability * (factor * gradient - delta[column]);
              probability *= factor;
            } else {
              gradient = probability * (gradient - delta[column]);
            }
            if constexpr (kChanges) gradient *= derivative;
          }
        }
      }
    }
    // Hidden pairs of query and key are set to zero after the arithmetic: most tiles have none and skip this.
    if (!open) {
      ASHLAR_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        ASHLAR_UNROLL
        for (int x = 0; x < 2; ++x) {
          const KeyRange range = p.mask.range<kChanges>(b, t + 8 * n + 2 * lane.q + x);
          ASHLAR_UNROLL
          for (int m = 0; m < kRowTiles; ++m) {
            ASHLAR_UNROLL
            for (int half = 0; half < 2; ++half) {
              if (range.contains(j + warp_row + lane.g + 16 * m + 8 * half)) continue;
              s[m][n][2 * half + x] = ds[m][n][2 * half + x] = 0;
            }
          }
        }
      }
    }

    // c. dv and dk
    add_weighted_rows<kRowTiles, kColumns, kWidth / 8>(dv, s, dout_tile, first_column, lane);
    add_weighted_rows<kRowTiles, kColumns, kWidth / 8>(dk, ds, q_tile, first_column, lane);
  }

  // 4. store dk and dv
  const auto signed_scale = static_cast<float>(arrays.scores.scale);
  StoreRows out{.data = arrays.dk.head(b, g, p.D),
                .stride = arrays.dk.row,
                .align = arrays.dk.align,
                .row = j + warp_row,
                .limit = p.T_kv,
                .first = first_column,
                .D = p.D,
                .accumulate = arrays.accumulate != 0};
  store_rows<kRowTiles, kWidth / 8>(
      dk,
      [&](int) {
        return float2{signed_scale, signed_scale};
      },
      k_tile, warp_row, out, lane);
  out.data = arrays.dv.head(b, g, p.D);
  out.stride = arrays.dv.row;
  out.align = arrays.dv.align;
  store_rows<kRowTiles, kWidth / 8>(
      dv,
      [&](int) {
        return float2{1.0F, 1.0F};
      },
      v_tile, warp_row, out, lane);
}

struct KeysKernel {
  template <typename Plan, bool kDropout, bool kChanges>
  static void launch(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream) {
    const Launch launch{.name = "attention_backward_keys",
                        .grid = dim3(blocks_for(p.T_kv, Plan::kRows) * Plan::kParts, p.G, p.B),
                        .block = dim3(Plan::kThreads),
                        .shared_bytes = Plan::kSharedBytes};
    run_kernel(stream, launch, keys_kernel<Plan, kDropout, kChanges>, p, arrays);
  }
};

}  // namespace

void backward_keys_bf16(const Problem& p, const BackwardArrays<BF16>& arrays, Stream& stream) {
  if (p.D <= 16) return launch_variant<KeysKernel, KeysPlan<16, 2, 64>, KeysPlan<16, 1, 64>>(p, arrays, stream);
  if (p.D <= 32) return launch_variant<KeysKernel, KeysPlan<32, 2, 64>, KeysPlan<32, 1, 64>>(p, arrays, stream);
  if (p.D <= 64) return launch_variant<KeysKernel, KeysPlan<64, 2, 32>, KeysPlan<64, 1, 64>>(p, arrays, stream);
  if (p.D <= 96) return launch_variant<KeysKernel, KeysPlan<96, 1, 64>>(p, arrays, stream);
  if (p.D <= 128) return launch_variant<KeysKernel, KeysPlan<128, 1, 32>>(p, arrays, stream);
  return launch_variant<KeysKernel, KeysPlan<256, 1, 16>>(p, arrays, stream);
}

}  // namespace ashlar::ASHLAR_DEV::attention
