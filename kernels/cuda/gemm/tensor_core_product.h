#pragma once

#include "kernels/cuda/dev/fragments.h"
#include "kernels/cuda/gemm/grouped.h"

/// A product of bf16 matrices by one block on tensor cores, summed in fp32. The block computes 128 x 128 elements: 4
/// warps in a square, 64 x 64 each, in registers. Factors pass through shared memory in stages of 32 terms. While the
/// block multiplies a stage, asynchronous copies of the next three are on their way, and fragments of the next 16 terms
/// are loaded while tensor cores multiply the current ones.
namespace ashlar::ASHLAR_DEV {

struct TensorCorePlan {
  static constexpr int kExtent = 128;     ///< number of rows, and of columns, of the result
  static constexpr int kWarpExtent = 64;  ///< number of rows, and of columns, of a warp
  static constexpr int kThreads = 128;
  static constexpr int kTerms = 32;  ///< number of terms of a stage
  static constexpr int kStages = 4;
  static constexpr int kFactor = kExtent * kTerms;  ///< number of elements of a factor in a stage
  static constexpr int64_t kSharedBytes = int64_t{kStages} * 2 * kFactor * int64_t{sizeof(BF16)};
  static constexpr int kRowTiles = kWarpExtent / 16, kColumns = kWarpExtent / 8;
};
/// The elements of the result that a lane holds.
using ProductTile = Accumulator<TensorCorePlan::kColumns>[TensorCorePlan::kRowTiles];

/// The warp's place in the square of warps.
struct WarpTile {
  int row, column;

  __device__ WarpTile() {
    const auto warp = static_cast<int>(threadIdx.x / 32);
    row = warp / 2 * TensorCorePlan::kWarpExtent;
    column = warp % 2 * TensorCorePlan::kWarpExtent;
  }
};

namespace internal {

/// The tile in shared memory of 32 terms of a factor: as in global memory, rows by terms or terms by rows.
template <Layout kLayout>
using FactorTile = Tile<kLayout == Layout::kByRow ? TensorCorePlan::kTerms : TensorCorePlan::kExtent>;

/// The tiles of one factor in all stages. A stage has the tile of the left factor, then that of the right one.
template <Layout kLayout>
struct FactorStages {
  BF16* first;
  uint32_t address;

  __device__ __forceinline__ explicit FactorStages(BF16* begin) : first(begin), address(shared_address(begin)) {}
  __device__ __forceinline__ FactorTile<kLayout> operator()(int stage) const {
    const int at = stage % TensorCorePlan::kStages * 2 * TensorCorePlan::kFactor;
    return FactorTile<kLayout>(first + at, address + static_cast<uint32_t>(at) * uint32_t{sizeof(BF16)});
  }
};

/// Starts copying terms [first, first + 32) of a factor. Terms from `terms` on become zero.
template <Layout kLayout>
__device__ __forceinline__ void load_factor(const FactorTile<kLayout>& tile, const Factor<BF16, kLayout>& factor,
                                            int first, int terms) {
  using Plan = TensorCorePlan;
  if constexpr (kLayout == Layout::kByRow) {
    load_tile<Plan::kExtent, Plan::kThreads>(tile, factor.data + first, factor.stride, factor.align, 0, factor.rows,
                                             terms - first);
  } else {
    load_tile<Plan::kTerms, Plan::kThreads>(tile, factor.data, factor.stride, factor.align, first, terms, factor.rows);
  }
}

/// The fragments of 16 terms of a warp's rows and columns.
struct Fragments {
  uint32_t left[TensorCorePlan::kRowTiles][4];
  uint32_t right[TensorCorePlan::kColumns][2];

  template <Layout kLeft, Layout kRight>
  __device__ __forceinline__ void load(const FactorTile<kLeft>& left_tile, const FactorTile<kRight>& right_tile, int k,
                                       const WarpTile& warp, const Lane& lane) {
    ASHLAR_UNROLL
    for (int m = 0; m < TensorCorePlan::kRowTiles; ++m) {
      if constexpr (kLeft == Layout::kByRow) {
        load_left(left[m], left_tile, warp.row + 16 * m, k, lane);
      } else {
        load_left_transposed(left[m], left_tile, k, warp.row + 16 * m, lane);
      }
    }
    ASHLAR_UNROLL
    for (int n = 0; n < TensorCorePlan::kColumns; n += 2) {
      if constexpr (kRight == Layout::kByRow) {
        load_right_transposed(right[n], right[n + 1], right_tile, warp.column + 8 * n, k, lane);
      } else {
        load_right(right[n], right[n + 1], right_tile, 16 * k, warp.column / 16 + n / 2, lane);
      }
    }
  }
  __device__ __forceinline__ void multiply(ProductTile& c) const {
    ASHLAR_UNROLL
    for (int m = 0; m < TensorCorePlan::kRowTiles; ++m) {
      ASHLAR_UNROLL
      for (int n = 0; n < TensorCorePlan::kColumns; ++n) mma_m16n8k16(c[m][n], left[m], right[n], c[m][n]);
    }
  }
};

}  // namespace internal

/// c += left times the transpose of right, over `terms` terms in ascending order. `shared` has kSharedBytes. All
/// threads of the block must call it; afterwards they may use `shared` for anything.
template <Layout kLeft, Layout kRight>
__device__ __forceinline__ void multiply(ProductTile& c, const Factor<BF16, kLeft>& left,
                                         const Factor<BF16, kRight>& right, int terms, BF16* shared,
                                         const WarpTile& warp, const Lane& lane) {
  using Plan = TensorCorePlan;
  constexpr int kSteps = Plan::kTerms / 16;  // number of fragments of a stage
  const int stages = (terms + Plan::kTerms - 1) / Plan::kTerms;
  if (stages == 0) return;
  const internal::FactorStages<kLeft> left_tile(shared);
  const internal::FactorStages<kRight> right_tile(shared + Plan::kFactor);
  const auto load = [&](int stage) {
    if (stage < stages) {
      internal::load_factor<kLeft>(left_tile(stage), left, stage * Plan::kTerms, terms);
      internal::load_factor<kRight>(right_tile(stage), right, stage * Plan::kTerms, terms);
    }
    cp_async_commit_group();  // a group for each stage, empty behind the last, so that the number to wait for is fixed
  };
  // A warp beyond the last row or column has nothing to compute.
  const bool works = warp.row < left.rows && warp.column < right.rows;

  ASHLAR_UNROLL
  for (int stage = 0; stage < Plan::kStages - 1; ++stage) load(stage);
  cp_async_wait_group<Plan::kStages - 2>();
  __syncthreads();  // stage 0 is complete
  internal::Fragments fragments[2];
  if (works) fragments[0].load<kLeft, kRight>(left_tile(0), right_tile(0), 0, warp, lane);
  ASHLAR_NO_UNROLL
  for (int stage = 0; stage < stages; ++stage) {
    ASHLAR_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      if (k == kSteps - 1) {
        cp_async_wait_group<Plan::kStages - 2>();
        __syncthreads();  // the next stage is complete, and all threads have read the fragments of this one
      }
      // Behind the last stage these are old numbers, which nobody uses.
      const int next = k == kSteps - 1 ? stage + 1 : stage;
      if (works) {
        fragments[(k + 1) % 2].load<kLeft, kRight>(left_tile(next), right_tile(next), (k + 1) % kSteps, warp, lane);
      }
      if (k == 0) load(stage + Plan::kStages - 1);
      if (works) fragments[k % 2].multiply(c);
    }
  }
  cp_async_wait_group<0>();
  __syncthreads();  // no thread reads a stage any more
}

}  // namespace ashlar::ASHLAR_DEV
