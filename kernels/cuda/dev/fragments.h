#pragma once

#include "kernels/cuda/dev/tile.h"

/// Matrix products of a warp on tiles in shared memory, and the layout of their fragments.
///
/// mma.m16n8k16 multiplies a [16, 16] by b [16, 8] into d [16, 8]. With g = lane / 4 and q = lane % 4 a lane holds
///   a: rows g and g + 8, columns 2q, 2q + 1, 2q + 8, 2q + 9
///   b: rows 2q, 2q + 1, 2q + 8, 2q + 9, column g
///   d: rows g and g + 8 (elements 0, 1 and 2, 3), columns 2q and 2q + 1
/// so two adjacent fragments d, rounded to bf16, form one fragment a: the result of a product can stay in registers as
/// the left factor of the next product. ldmatrix loads an 8 x 8 matrix or its transpose: lane (g, q) gets row g,
/// columns 2q and 2q + 1. The rows of the matrix may be at any addresses.
namespace ashlar::ASHLAR_DEV {

/// A lane's elements of a [16, 8 * kColumns] fp32 matrix: one fragment d for each group of 8 columns.
template <int kColumns>
using Accumulator = float[kColumns][4];

struct Lane {
  int index, g, q;

  __device__ Lane() : index(threadIdx.x % 32), g(index / 4), q(index % 4) {}
};

template <int kColumns>
__device__ __forceinline__ void clear(Accumulator<kColumns>& x) {
  ASHLAR_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    ASHLAR_UNROLL
    for (int i = 0; i < 4; ++i) x[n][i] = 0;
  }
}

/// Rounds two numbers to bf16 and packs them into one register of a fragment, `low` in the lower half.
__device__ __forceinline__ uint32_t pack(float low, float high) {
  const float both[2] = {low, high};
  return std::bit_cast<uint32_t>(narrow<BF16>(both));
}

/// Loads a = rows [row, row + 16), columns [16 * k, 16 * k + 16) of a tile. The four 8 x 8 matrices are in the order
/// upper left, lower left, upper right, lower right.
template <int kD>
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const Tile<kD>& tile, int row, int k, const Lane& lane) {
  ldmatrix_x4(a, tile.chunk_address(row + lane.index % 16, 2 * k + lane.index / 16));
}

/// Loads a = the transpose of rows [16 * k, 16 * k + 16), columns [column, column + 16) of a tile.
template <int kD>
__device__ __forceinline__ void load_left_transposed(uint32_t (&a)[4], const Tile<kD>& tile, int k, int column,
                                                     const Lane& lane) {
  ldmatrix_x4_trans(
      a, tile.chunk_address(16 * k + lane.index % 8 + lane.index / 16 * 8, column / kChunk + lane.index / 8 % 2));
}

/// Loads the right factors of a product with the transpose of the tile: b0 is the transpose of rows [row, row + 8), b1
/// of rows [row + 8, row + 16), both of columns [16 * k, 16 * k + 16).
template <int kD>
__device__ __forceinline__ void load_right_transposed(uint32_t (&b0)[2], uint32_t (&b1)[2], const Tile<kD>& tile,
                                                      int row, int k, const Lane& lane) {
  uint32_t b[4];
  ldmatrix_x4(b, tile.chunk_address(row + lane.index % 8 + lane.index / 16 * 8, 2 * k + lane.index / 8 % 2));
  b0[0] = b[0], b0[1] = b[1], b1[0] = b[2], b1[1] = b[3];
}

/// Loads the right factors of a product with the tile, from rows [row, row + 16): b0 is columns [16 * n, 16 * n + 8),
/// b1 is columns [16 * n + 8, 16 * n + 16).
template <int kD>
__device__ __forceinline__ void load_right(uint32_t (&b0)[2], uint32_t (&b1)[2], const Tile<kD>& tile, int row, int n,
                                           const Lane& lane) {
  uint32_t b[4];
  ldmatrix_x4_trans(b, tile.chunk_address(row + lane.index % 16, 2 * n + lane.index / 16));
  b0[0] = b[0], b0[1] = b[1], b1[0] = b[2], b1[1] = b[3];
}

/// c[m] = rows [row + 16 * m, row + 16 * m + 16) of `left` times the transpose of the first 8 * kColumns rows of
/// `right`. Left factors are combined with `flip` by exclusive or: 0x80008000 negates them, 0 leaves them unchanged.
template <int kRowTiles, int kColumns, int kD>
__device__ __forceinline__ void multiply_rows(Accumulator<kColumns> (&c)[kRowTiles], const Tile<kD>& left, int row,
                                              const Tile<kD>& right, uint32_t flip, const Lane& lane) {
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) clear<kColumns>(c[m]);
  ASHLAR_UNROLL
  for (int k = 0; k < kD / 16; ++k) {
    uint32_t a[kRowTiles][4];
    ASHLAR_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      load_left(a[m], left, row + 16 * m, k, lane);
      ASHLAR_UNROLL
      for (int i = 0; i < 4; ++i) a[m][i] ^= flip;
    }
    ASHLAR_UNROLL
    for (int n = 0; n < kColumns; n += 2) {
      uint32_t b0[2], b1[2];
      load_right_transposed(b0, b1, right, 8 * n, k, lane);
      ASHLAR_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        mma_m16n8k16(c[m][n], a[m], b0, c[m][n]);
        mma_m16n8k16(c[m][n + 1], a[m], b1, c[m][n + 1]);
      }
    }
  }
}

/// c[m] += weights[m], rounded to bf16, times columns [first, first + 8 * kColumns) of the first 8 * kTerms rows of
/// `right`.
template <int kRowTiles, int kTerms, int kColumns, int kD>
__device__ __forceinline__ void add_weighted_rows(Accumulator<kColumns> (&c)[kRowTiles],
                                                  const Accumulator<kTerms> (&weights)[kRowTiles],
                                                  const Tile<kD>& right, int first, const Lane& lane) {
  ASHLAR_UNROLL
  for (int k = 0; k < kTerms; k += 2) {
    uint32_t a[kRowTiles][4];
    ASHLAR_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      a[m][0] = pack(weights[m][k][0], weights[m][k][1]);
      a[m][1] = pack(weights[m][k][2], weights[m][k][3]);
      a[m][2] = pack(weights[m][k + 1][0], weights[m][k + 1][1]);
      a[m][3] = pack(weights[m][k + 1][2], weights[m][k + 1][3]);
    }
    ASHLAR_UNROLL
    for (int n = 0; n < kColumns; n += 2) {
      uint32_t b0[2], b1[2];
      load_right(b0, b1, right, 8 * k, first / 16 + n / 2, lane);
      ASHLAR_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        mma_m16n8k16(c[m][n], a[m], b0, c[m][n]);
        mma_m16n8k16(c[m][n + 1], a[m], b1, c[m][n + 1]);
      }
    }
  }
}

/// Destination of a warp's rows of results: rows [row, limit) of a matrix, columns [first, D).
struct StoreRows {
  BF16* data;  ///< row 0
  int64_t stride;
  int align;  ///< alignment of every row in bytes
  int row, limit;
  int first = 0;
  int D;
  bool accumulate = false;  ///< adds to the previous values
};

/// Writes c[m] to the m-th group of 16 rows, rounded once. A lane multiplies its row g by factor(m).x and its row g + 8
/// by factor(m).y. The values are first rearranged in shared memory, so that each lane writes 16 bytes. This uses the
/// rows of `stage` from stage_row on, which no other warp may read.
template <int kRowTiles, int kColumns, int kD, typename Factor>
__device__ __forceinline__ void store_rows(const Accumulator<kColumns> (&c)[kRowTiles], const Factor& factor,
                                           const Tile<kD>& stage, int stage_row, const StoreRows& out,
                                           const Lane& lane) {
  constexpr int kSlots = 16 * kColumns;
  const bool vector = out.align == 16;
  ASHLAR_UNROLL
  for (int m = 0; m < kRowTiles; ++m) {
    const int first_row = out.row + 16 * m, first_stage = stage_row + 16 * m;
    const float2 factors = factor(m);
    __syncwarp();  // all lanes have read the rows of `stage` that are overwritten next
    if (out.accumulate) {
      ASHLAR_UNROLL
      for (int i = lane.index; i < kSlots; i += 32) {
        const int r = i / kColumns, column = i % kColumns;
        const int count = first_row + r < out.limit ? out.D - out.first - column * kChunk : 0;
        const BF16* const from = out.data + (first_row + r) * out.stride + out.first + column * kChunk;
        store_shared(stage.chunk(first_stage + r, column),
                     load_some<kChunk>(count > 0 ? from : out.data, count, vector));
      }
      __syncwarp();
    }
    ASHLAR_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      ASHLAR_UNROLL
      for (int half = 0; half < 2; ++half) {
        BF16* const pair = stage.chunk(first_stage + lane.g + 8 * half, n) + 2 * lane.q;
        const float by = half == 0 ? factors.x : factors.y;
        float values[2] = {by * c[m][n][2 * half], by * c[m][n][2 * half + 1]};
        if (out.accumulate) {
          const Vec<BF16, 2> before = load<2>(pair);
          values[0] += before.wide(0);
          values[1] += before.wide(1);
        }
        store_shared(pair, narrow<BF16>(values));
      }
    }
    __syncwarp();
    ASHLAR_UNROLL
    for (int i = lane.index; i < kSlots; i += 32) {
      const int r = i / kColumns, column = i % kColumns;
      const int count = first_row + r < out.limit ? out.D - out.first - column * kChunk : 0;
      if (count <= 0) continue;
      BF16* const to = out.data + (first_row + r) * out.stride + out.first + column * kChunk;
      store_some(to, load<kChunk>(stage.chunk(first_stage + r, column)), count, vector);
    }
  }
}

}  // namespace ashlar::ASHLAR_DEV
