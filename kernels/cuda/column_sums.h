#pragma once

#include "kernels/cuda/dev/vector.h"

/// Sums of columns, in an order that depends on the number of rows alone.
namespace ashlar::ASHLAR_DEV {

/// The block of sum_columns: 8 warps, one beside the other in y.
inline constexpr int kSumLanes = 32, kSumWarps = 8;

/// A block sums 32 vectors of columns, from column `first_column` on, over rows [first, end). Lanes of its first warp
/// then call store(column, sum) for each column below `cols`. All threads of the block must call it.
/// 1. each warp sums every eighth row, each lane one vector of columns  2. the first warp adds the warps' sums in order
template <typename T, typename Store>
__device__ __forceinline__ void sum_columns(const Rows<const T>& x, int64_t first, int64_t end, int64_t first_column,
                                            int64_t cols, bool vectors, const Store& store) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  ASHLAR_SHARED(A, shared, [kSumWarps][W][kSumLanes]);
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t col = first_column + lane * W;
  const int count = static_cast<int>(col + W <= cols ? W : cols - col);

  // 1. sum the rows of each warp
  A sums[W] = {};
  if (count > 0) {
    for (int64_t r = first + warp; r < end; r += kSumWarps) {
      const auto row = load_some<W>(x[r] + col, count, vectors);
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sums[i] += row.wide(i);
    }
  }
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) shared[warp][i][lane] = sums[i];
  __syncthreads();

  // 2. add the sums of the warps
  if (warp != 0) return;
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) {
    for (int w = 1; w < kSumWarps; ++w) sums[i] += shared[w][i][lane];
    if (i < count) store(col + i, sums[i]);
  }
}

}  // namespace ashlar::ASHLAR_DEV
