#pragma once

#include "kernels/cuda/dev/ptx.h"
#include "kernels/cuda/dev/vector.h"

/// Tiles of bf16 rows in shared memory, and copies between them and global memory.
namespace ashlar::ASHLAR_DEV {

inline constexpr int kChunk = 8;  ///< number of elements of a chunk: the 16 bytes that one instruction copies

/// Rows of kD bf16 elements in shared memory, without padding. The chunks of a row are permuted to avoid bank
/// conflicts. ldmatrix reads the same chunk of 8 adjacent rows at once. A copy writes 8 adjacent chunks at once, of one
/// row or, if a row has fewer chunks, of adjacent rows. In both cases the 8 chunks are in different banks.
template <int kD>
struct Tile {
  static constexpr int kChunks = kD / kChunk;

  BF16* data;
  uint32_t address;  ///< address of data in shared memory, for instructions

  __device__ explicit Tile(BF16* begin) : Tile(begin, shared_address(begin)) {}
  __device__ Tile(BF16* begin, uint32_t begin_address) : data(begin), address(begin_address) {}

  static constexpr int elements(int rows) { return rows * kD; }
  /// Returns the position of chunk c of a row in the tile, in chunks. 128 bytes (all banks) are one row of 8 chunks, 2
  /// rows of 4 chunks or 4 rows of 2 chunks.
  __device__ static int slot(int row, int c) {
    static_assert(kChunks % 4 == 0 || kChunks == 2);
    constexpr int kTurn = kChunks % 8 == 0 ? 0 : kChunks % 4 == 0 ? 1 : 2;
    constexpr int kMask = kChunks % 8 == 0 ? 7 : kChunks % 4 == 0 ? 3 : 1;
    return row * kChunks + (c ^ ((row >> kTurn) & kMask));
  }
  __device__ uint32_t chunk_address(int row, int c) const { return address + slot(row, c) * 16; }
  __device__ BF16* chunk(int row, int c) const { return data + slot(row, c) * kChunk; }
};

/// Copies up to 8 elements of a row to shared memory with the widest asynchronous copies that `align` (8, 4 or 2 bytes)
/// allows. With 2 bytes the elements are copied through registers, since cp.async copies at least 4 bytes.
__device__ inline void copy_chunk(uint32_t to_address, BF16* to, const BF16* from, int count, int align) {
  const int bytes = 2 * count;
  if (align == 8) {
    ASHLAR_UNROLL
    for (int x = 0; x < 16; x += 8) cp_async<8>(to_address + x, from + x / 2, min(max(bytes - x, 0), 8));
  } else if (align == 4) {
    ASHLAR_UNROLL
    for (int x = 0; x < 16; x += 4) cp_async<4>(to_address + x, from + x / 2, min(max(bytes - x, 0), 4));
  } else {
    store_shared(to, load_part<kChunk>(from, count));
  }
}

/// Starts loading rows [first, first + kRows) of a matrix into a tile; rows from `limit` on and columns from D on
/// become zero. `matrix` points to row 0; `align` is the alignment of every row in bytes: a power of 2, at most 16. All
/// kThreads threads must call it; the tile is complete after cp_async_wait_group and a barrier.
template <int kRows, int kThreads, int kD>
__device__ __forceinline__ void load_tile(const Tile<kD>& tile, const BF16* matrix, int64_t row_stride, int align,
                                          int first, int limit, int D) {
  // Each pass loads kPass whole rows. If kPass is a multiple of 8, the destinations of a thread are equally spaced.
  constexpr int kChunks = Tile<kD>::kChunks;
  constexpr int kPass = kThreads / kChunks >= 8 ? kThreads / kChunks / 8 * 8 : kThreads / kChunks;
  static_assert(kRows % kPass == 0 || kRows < kPass);
  const int thread = threadIdx.x, r = thread / kChunks, c = thread % kChunks;
  if (r >= (kRows < kPass ? kRows : kPass)) return;
  const int columns = min(max(D - c * kChunk, 0), kChunk);
  const BF16* from = matrix + (first + r) * row_stride + c * kChunk;
  if (align == 16) {
    ASHLAR_UNROLL
    for (int pass = 0; pass < kRows; pass += kPass) {
      const int count = first + r + pass < limit ? columns : 0;
      cp_async<16>(tile.chunk_address(r + pass, c), count > 0 ? from : matrix, 2 * count);
      from += kPass * row_stride;
    }
  } else {
    ASHLAR_NO_UNROLL
    for (int pass = 0; pass < kRows; pass += kPass) {
      const int count = first + r + pass < limit ? columns : 0;
      copy_chunk(tile.chunk_address(r + pass, c), tile.chunk(r + pass, c), count > 0 ? from : matrix, count, align);
      from += kPass * row_stride;
    }
  }
}

}  // namespace ashlar::ASHLAR_DEV
