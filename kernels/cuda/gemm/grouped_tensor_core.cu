// Grouped matrix products on tensor cores, bf16 storage, fp32 sums (grouped_simt.cu: fp32 and fp64):
//   forward           y[s] = x[s] w[g]^T + bias[g]
//   input gradient    dx[s] = dy[s] w[g]
//   weight gradient   dw[g] (+)= dy[rows of g]^T x[rows of g]
// 2*S*M*K flops for S rows, K inputs and M outputs. A block of 4 warps computes 128 x 128 elements of one group
// (tensor_core_product.h) and reads 256 rows of the factors: 64 flops a byte and term, so tensor cores are the limit
// from some 100 rows a group on; below, reading each weight once is. Offsets are known on the device alone. The grid of
// the first two has a block for every tile that S rows may need, however they are divided into groups: at most S / 128
// + G + 1 rows of tiles. A block finds its rows by itself; blocks without rows exit.

#include "kernels/cuda/gemm/tensor_core_product.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV {

namespace {

using Plan = TensorCorePlan;

__device__ __forceinline__ void clear_tile(ProductTile& c) {
  ASHLAR_UNROLL
  for (int m = 0; m < Plan::kRowTiles; ++m) clear<Plan::kColumns>(c[m]);
}

/// c[row, column] += bias[column], for the columns below `columns`.
__device__ __forceinline__ void add_bias(ProductTile& c, const BF16* bias, int columns, const WarpTile& warp,
                                         const Lane& lane) {
  ASHLAR_UNROLL
  for (int n = 0; n < Plan::kColumns; ++n) {
    ASHLAR_UNROLL
    for (int x = 0; x < 2; ++x) {
      const int column = warp.column + 8 * n + 2 * lane.q + x;
      const float b = column < columns ? widen(bias[column]) : 0.0F;
      ASHLAR_UNROLL
      for (int m = 0; m < Plan::kRowTiles; ++m) {
        c[m][n][x] += b;
        c[m][n][2 + x] += b;
      }
    }
  }
}

/// A block  1. finds its rows and columns  2. multiplies, unless its rows are behind the last group  3. adds the bias
/// 4. stores y, rounded once.
template <Layout kWeights>
__global__ void __launch_bounds__(Plan::kThreads, 2) grouped_rows_kernel(GroupedRows<BF16> a, TileGrid grid) {
  ASHLAR_DYNAMIC_SHARED(BF16, shared);
  const Lane lane;
  const WarpTile warp;
  // 1. rows and columns
  const int2 tile = grid.tile(blockIdx.x);
  const RowTile rows = find_row_tile<Plan::kExtent>(a.groups, tile.x);
  if (rows.group < 0) return;
  const int column = tile.y * Plan::kExtent, columns = a.columns - column;
  // 2. multiply
  ProductTile c;
  clear_tile(c);
  if (rows.group < a.groups.count) {
    const BF16* const w = a.w.data + rows.group * (int64_t{a.terms} * a.columns);
    const Factor<BF16, Layout::kByRow> left{.data = a.x.data + rows.first * a.x.stride,
                                            .stride = a.x.stride,
                                            .align = a.x.align,
                                            .rows = rows.end - rows.first};
    const Factor<BF16, kWeights> right{.data = kWeights == Layout::kByRow ? w + column * a.w.stride : w + column,
                                       .stride = a.w.stride,
                                       .align = a.w.align,
                                       .rows = columns};
    multiply(c, left, right, a.terms, shared, warp, lane);
    // 3. bias
    if (a.bias != nullptr) add_bias(c, a.bias + rows.group * int64_t{a.columns} + column, columns, warp, lane);
  }
  // 4. store. Each warp rearranges its rows in its own quarter of the stage.
  const Tile<Plan::kWarpExtent> stage(shared);
  store_rows<Plan::kRowTiles, Plan::kColumns>(
      c,
      [](int) {
        return float2{1.0F, 1.0F};
      },
      stage, static_cast<int>(threadIdx.x / 32) * Plan::kWarpExtent,
      {.data = a.y.data,
       .stride = a.y.stride,
       .align = a.y.align,
       .row = rows.first + warp.row,
       .limit = rows.end,
       .first = column + warp.column,
       .D = a.columns},
      lane);
}

/// A block  1. finds its group, rows of dw and columns of dw  2. multiplies over the rows of the group  3. stores or
/// adds 128 x 128 elements of dw.
__global__ void __launch_bounds__(Plan::kThreads, 2) grouped_weights_kernel(GroupedWeights<BF16> a, TileGrid grid) {
  ASHLAR_DYNAMIC_SHARED(BF16, shared);
  const Lane lane;
  const WarpTile warp;
  // 1. the block's part of dw
  const auto tiles = static_cast<unsigned>(grid.blocks());
  const auto group = static_cast<int>(blockIdx.x / tiles);
  const int2 tile = grid.tile(blockIdx.x % tiles);
  const int begin = a.groups.begin(group), end = a.groups.end(group);
  if (begin == end && a.accumulate) return;
  const int output = tile.x * Plan::kExtent, input = tile.y * Plan::kExtent;
  // 2. multiply
  ProductTile c;
  clear_tile(c);
  const Factor<BF16, Layout::kByTerm> left{.data = a.dy.data + begin * a.dy.stride + output,
                                           .stride = a.dy.stride,
                                           .align = a.dy.align,
                                           .rows = a.outputs - output};
  const Factor<BF16, Layout::kByTerm> right{.data = a.x.data + begin * a.x.stride + input,
                                            .stride = a.x.stride,
                                            .align = a.x.align,
                                            .rows = a.inputs - input};
  multiply(c, left, right, end - begin, shared, warp, lane);
  // 3. store
  const bool pairs = a.dw.align >= 8;
  ASHLAR_UNROLL
  for (int m = 0; m < Plan::kRowTiles; ++m) {
    ASHLAR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = output + warp.row + 16 * m + 8 * half + lane.g;
      if (row >= a.outputs) continue;
      float* const to = a.dw.data + (int64_t{group} * a.outputs + row) * a.dw.stride;
      ASHLAR_UNROLL
      for (int n = 0; n < Plan::kColumns; ++n) {
        const int column = input + warp.column + 8 * n + 2 * lane.q, count = min(a.inputs - column, 2);
        if (count <= 0) continue;
        float values[2] = {c[m][n][2 * half], c[m][n][2 * half + 1]};
        if (a.accumulate) {
          const Vec<float, 2> before = load_some<2>(to + column, count, pairs);
          values[0] += before.get(0);
          values[1] += before.get(1);
        }
        store_some(to + column, narrow<float>(values), count, pairs);
      }
    }
  }
}

}  // namespace

template <>
void grouped_rows(const GroupedRows<BF16>& args, Layout weights, Stream& stream) {
  const TileGrid grid{.row_tiles = static_cast<int>(args.groups.most_tiles(Plan::kExtent)),
                      .column_tiles = tiles_of(args.columns, Plan::kExtent)};
  const bool forward = weights == Layout::kByRow;
  run_kernel(stream,
             {.name = forward ? "grouped_linear_forward" : "grouped_linear_backward_input",
              .grid = dim3(static_cast<unsigned>(grid.blocks())),
              .block = dim3(Plan::kThreads),
              .shared_bytes = Plan::kSharedBytes},
             forward ? grouped_rows_kernel<Layout::kByRow> : grouped_rows_kernel<Layout::kByTerm>, args, grid);
}

template <>
void grouped_weights(const GroupedWeights<BF16>& args, Stream& stream) {
  const TileGrid grid{.row_tiles = tiles_of(args.outputs, Plan::kExtent),
                      .column_tiles = tiles_of(args.inputs, Plan::kExtent)};
  run_kernel(stream,
             {.name = "grouped_linear_backward_weight",
              .grid = dim3(static_cast<unsigned>(grid.blocks() * args.groups.count)),
              .block = dim3(Plan::kThreads),
              .shared_bytes = Plan::kSharedBytes},
             grouped_weights_kernel, args, grid);
}

}  // namespace ashlar::ASHLAR_DEV
