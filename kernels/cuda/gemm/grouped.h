#pragma once

#include <algorithm>

#include "core/device/stream.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dev/vector.h"

/// Matrix products with one weight for each group of rows (core/backend/grouped_linear.h): what the kernels with tensor
/// cores (grouped_tensor_core.cu, bf16) and those without (grouped_simt.cu, fp32 and fp64) have in common.
namespace ashlar::ASHLAR_DEV {

/// How a factor of a product lies in memory. A product sums over terms: c[row, column] = the sum over terms of
/// left(row, term) * right(column, term).
enum class Layout {
  kByRow,   ///< the terms of a row (or column) are adjacent
  kByTerm,  ///< the rows (or columns) of a term are adjacent: a transposed factor
};

/// The part of a factor that a block multiplies. Rows and terms from these numbers on are read as zero.
template <typename T, Layout kLayout>
struct Factor {
  const T* data;   ///< row 0 and term 0
  int64_t stride;  ///< elements from one row to the next (kByRow), or from one term to the next (kByTerm)
  int align;       ///< alignment of `data` and of all multiples of the stride in bytes: a power of 2, at most 16
  int rows;
};

/// A matrix in the form of a kernel argument.
template <typename T>
struct Matrix {
  T* data = nullptr;
  int64_t stride = 0;
  int align = 0;  ///< alignment of every row in bytes: a power of 2, at most 16
};
template <typename T>
Matrix<const T> matrix_of(const ConstView& v) {
  return {static_cast<const T*>(v.data), v.stride, row_alignment(v)};
}
template <typename T>
Matrix<T> matrix_of(const MutView& v) {
  return {static_cast<T*>(v.data), v.stride, row_alignment(v)};
}

/// The groups of rows. The rows behind the last group are as good as one more group, number `count`.
struct Groups {
  const int32_t* offsets;  ///< [count + 1], in device memory
  int count;
  int rows;  ///< rows of all groups and behind them

  __device__ __forceinline__ int begin(int g) const { return offsets[g]; }
  __device__ __forceinline__ int end(int g) const { return g < count ? offsets[g + 1] : rows; }
  /// Number of tiles of kRows rows that cover group g.
  template <int kRows>
  __device__ __forceinline__ int tiles(int g) const {
    return (end(g) - begin(g) + kRows - 1) / kRows;
  }
  /// Upper bound of the number of tiles of all groups and of the rows behind them, known without the offsets.
  int64_t most_tiles(int64_t tile_rows) const {
    return std::min<int64_t>(rows, (rows + (tile_rows - 1) * (int64_t{count} + 1)) / tile_rows);
  }
};

/// The rows of a block: all of one group, or, with group = Groups::count, all behind the last group. No rows if group
/// is negative.
struct RowTile {
  int group = -1, first = 0, end = 0;
};

/// Returns the rows of tile number `tile`, where the tiles of kRows rows of all groups are numbered in order. Any
/// number of groups. Every warp of the block finds the tile by itself:
/// 1. each lane adds the tiles of a share of adjacent groups, and then those of the lanes before it
/// 2. the lane that has the tile looks for its group  3. the other lanes get the result.
template <int kRows>
__device__ __forceinline__ RowTile find_row_tile(const Groups& groups, int tile) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  // 1. count tiles
  const int share = groups.count / 32 + 1;
  const int first = min(lane * share, groups.count + 1), last = min(first + share, groups.count + 1);
  int mine = 0;
  for (int g = first; g < last; ++g) mine += groups.tiles<kRows>(g);
  const int before = warp_prefix_sum(mine) - mine;
  // 2. find the group
  RowTile found;
  if (before <= tile && tile < before + mine) {
    int g = first, t = tile - before;
    for (int tiles = groups.tiles<kRows>(g); t >= tiles; tiles = groups.tiles<kRows>(g)) {
      t -= tiles;
      ++g;
    }
    const int begin = groups.begin(g) + t * kRows;
    found = {g, begin, min(begin + kRows, groups.end(g))};
  }
  // 3. tell the others
  const unsigned finder = __ballot_sync(0xffffffffU, found.group >= 0 ? 1 : 0);
  const int from = finder == 0 ? 0 : __ffs(static_cast<int>(finder)) - 1;
  found.group = __shfl_sync(0xffffffffU, found.group, from);
  found.first = __shfl_sync(0xffffffffU, found.first, from);
  found.end = __shfl_sync(0xffffffffU, found.end, from);
  return found;
}

inline int tiles_of(int extent, int size) { return (extent + size - 1) / size; }

/// The order in which blocks take the tiles of a result: strips of kStrip row tiles, within a strip by columns. The
/// blocks that run at the same time then share most of their rows and weights in the L2 cache.
struct TileGrid {
  static constexpr int kStrip = 8;

  int row_tiles, column_tiles;

  __host__ __device__ __forceinline__ int64_t blocks() const { return int64_t{row_tiles} * column_tiles; }
  __device__ __forceinline__ int2 tile(unsigned block) const {
    const auto strip_tiles = static_cast<unsigned>(kStrip) * static_cast<unsigned>(column_tiles);
    const auto strip = static_cast<int>(block / strip_tiles), inside = static_cast<int>(block % strip_tiles);
    const int height = min(kStrip, row_tiles - strip * kStrip);
    return make_int2(strip * kStrip + inside % height, inside / height);
  }
};

/// y[s] = the product of x[s] and the weight of its group, + bias: forward with weights [columns, terms] a group
/// (kByRow), the gradient of the input with weights [terms, columns] (kByTerm). Rows behind the last group become zero.
template <typename T>
struct GroupedRows {
  Matrix<const T> x;  ///< [rows, terms]
  Matrix<const T> w;
  const T* bias;  ///< [count * columns] or null
  Matrix<T> y;    ///< [rows, columns]
  Groups groups;
  int terms, columns;
};
/// Queues the kernel. `weights` is the layout of the right factor.
template <typename T>
void grouped_rows(const GroupedRows<T>& args, Layout weights, Stream& stream);
template <>
void grouped_rows(const GroupedRows<BF16>& args, Layout weights, Stream& stream);

/// dw[g] (+)= dy[rows of g]^T x[rows of g].
template <typename T>
struct GroupedWeights {
  Matrix<const T> dy;          ///< [rows, outputs]
  Matrix<const T> x;           ///< [rows, inputs]
  Matrix<AccumulateOf<T>> dw;  ///< [count * outputs, inputs]
  Groups groups;
  int outputs, inputs;
  bool accumulate;
};
template <typename T>
void grouped_weights(const GroupedWeights<T>& args, Stream& stream);
template <>
void grouped_weights(const GroupedWeights<BF16>& args, Stream& stream);

}  // namespace ashlar::ASHLAR_DEV
