// Grouped matrix products without tensor cores, for fp32 and fp64 storage. Formulas are those of
// grouped_tensor_core.cu. A block of 256 threads computes 64 x 64 elements of one group, 16 a thread, from 16 terms at
// a time in shared memory. Terms are added in ascending order, by fused multiply-adds. Bound by reads of shared memory:
// 8 for 16 multiply-adds.

#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/gemm/grouped.h"
#include "kernels/cuda/host/launch_kernel.h"

namespace ashlar::ASHLAR_DEV {

namespace {

constexpr int kTile = 64;   // number of rows, and of columns, of a block
constexpr int kTerms = 16;  // number of terms in shared memory
constexpr int kHeld = 4;    // a thread has rows y, y + 16, ... and columns x, x + 16, ...

/// Terms of the rows of one factor. One column of padding avoids bank conflicts.
template <typename T>
using TermSlice = T[kTerms][kTile + 1];

/// Copies terms [first, first + kTerms) of a factor; adjacent threads read adjacent elements.
template <typename T, Layout kLayout>
__device__ __forceinline__ void load_slice(TermSlice<T>& slice, const Factor<T, kLayout>& factor, int first,
                                           int terms) {
  for (auto i = static_cast<int>(threadIdx.x); i < kTerms * kTile; i += kThreads) {
    const int row = kLayout == Layout::kByRow ? i / kTerms : i % kTile;
    const int term = kLayout == Layout::kByRow ? i % kTerms : i / kTile;
    const bool inside = row < factor.rows && first + term < terms;
    const int64_t at =
        kLayout == Layout::kByRow ? row * factor.stride + first + term : (first + term) * factor.stride + row;
    slice[term][row] = inside ? factor.data[at] : T{0};
  }
}

/// c = left times the transpose of right. All threads of the block must call it.
template <typename T, Layout kLeft, Layout kRight>
__device__ __forceinline__ void multiply_slices(T (&c)[kHeld][kHeld], const Factor<T, kLeft>& left,
                                                const Factor<T, kRight>& right, int terms, TermSlice<T> (&shared)[2]) {
  const auto x = static_cast<int>(threadIdx.x % 16), y = static_cast<int>(threadIdx.x / 16);
  ASHLAR_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    ASHLAR_UNROLL
    for (int j = 0; j < kHeld; ++j) c[i][j] = 0;
  }
  ASHLAR_NO_UNROLL
  for (int first = 0; first < terms; first += kTerms) {
    if (first > 0) __syncthreads();  // all threads have read the previous terms
    load_slice(shared[0], left, first, terms);
    load_slice(shared[1], right, first, terms);
    __syncthreads();
    ASHLAR_UNROLL
    for (int term = 0; term < kTerms; ++term) {
      T a[kHeld], b[kHeld];
      ASHLAR_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        a[i] = shared[0][term][y + 16 * i];
        b[i] = shared[1][term][x + 16 * i];
      }
      ASHLAR_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        ASHLAR_UNROLL
        for (int j = 0; j < kHeld; ++j) c[i][j] = fused(a[i], b[j], c[i][j]);
      }
    }
  }
}

/// A block  1. finds its rows and columns  2. multiplies, unless its rows are behind the last group  3. adds the bias
/// and stores.
template <typename T, Layout kWeights>
__global__ void __launch_bounds__(kThreads, 2) grouped_rows_simt_kernel(GroupedRows<T> a, TileGrid grid) {
  ASHLAR_SHARED(TermSlice<T>, shared, [2]);
  // 1. rows and columns
  const int2 tile = grid.tile(blockIdx.x);
  const RowTile rows = find_row_tile<kTile>(a.groups, tile.x);
  if (rows.group < 0) return;
  const int column = tile.y * kTile, columns = a.columns - column;
  // 2. multiply
  T c[kHeld][kHeld];
  const bool grouped = rows.group < a.groups.count;
  const T* const w = a.w.data + (grouped ? rows.group * (int64_t{a.terms} * a.columns) : 0);
  const Factor<T, Layout::kByRow> left{
      .data = a.x.data + rows.first * a.x.stride, .stride = a.x.stride, .align = 0, .rows = rows.end - rows.first};
  const Factor<T, kWeights> right{.data = kWeights == Layout::kByRow ? w + column * a.w.stride : w + column,
                                  .stride = a.w.stride,
                                  .align = 0,
                                  .rows = columns};
  multiply_slices(c, left, right, grouped ? a.terms : 0, shared);
  // 3. bias, store
  const T* const bias = grouped && a.bias != nullptr ? a.bias + rows.group * int64_t{a.columns} + column : nullptr;
  ASHLAR_UNROLL
  for (int j = 0; j < kHeld; ++j) {
    const int at = static_cast<int>(threadIdx.x % 16) + 16 * j;
    if (at >= columns) continue;
    const T b = bias != nullptr ? bias[at] : T{0};
    ASHLAR_UNROLL
    for (int i = 0; i < kHeld; ++i) {
      const int row = rows.first + static_cast<int>(threadIdx.x / 16) + 16 * i;
      if (row < rows.end) a.y.data[row * a.y.stride + column + at] = c[i][j] + b;
    }
  }
}

/// A block  1. finds its group, rows of dw and columns of dw  2. multiplies over the rows of the group  3. stores or
/// adds its part of dw.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2) grouped_weights_simt_kernel(GroupedWeights<T> a, TileGrid grid) {
  ASHLAR_SHARED(TermSlice<T>, shared, [2]);
  // 1. the block's part of dw
  const auto tiles = static_cast<unsigned>(grid.blocks());
  const auto group = static_cast<int>(blockIdx.x / tiles);
  const int2 tile = grid.tile(blockIdx.x % tiles);
  const int begin = a.groups.begin(group), end = a.groups.end(group);
  if (begin == end && a.accumulate) return;
  const int output = tile.x * kTile, input = tile.y * kTile;
  // 2. multiply
  T c[kHeld][kHeld];
  const Factor<T, Layout::kByTerm> left{
      .data = a.dy.data + begin * a.dy.stride + output, .stride = a.dy.stride, .align = 0, .rows = a.outputs - output};
  const Factor<T, Layout::kByTerm> right{
      .data = a.x.data + begin * a.x.stride + input, .stride = a.x.stride, .align = 0, .rows = a.inputs - input};
  multiply_slices(c, left, right, end - begin, shared);
  // 3. store
  ASHLAR_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int row = output + static_cast<int>(threadIdx.x / 16) + 16 * i;
    if (row >= a.outputs) continue;
    T* const to = a.dw.data + (int64_t{group} * a.outputs + row) * a.dw.stride;
    ASHLAR_UNROLL
    for (int j = 0; j < kHeld; ++j) {
      const int column = input + static_cast<int>(threadIdx.x % 16) + 16 * j;
      if (column < a.inputs) to[column] = a.accumulate ? to[column] + c[i][j] : c[i][j];
    }
  }
}

}  // namespace

template <typename T>
void grouped_rows(const GroupedRows<T>& args, Layout weights, Stream& stream) {
  const TileGrid grid{.row_tiles = static_cast<int>(args.groups.most_tiles(kTile)),
                      .column_tiles = tiles_of(args.columns, kTile)};
  const bool forward = weights == Layout::kByRow;
  run_kernel(stream,
             {.name = forward ? "grouped_linear_forward" : "grouped_linear_backward_input",
              .grid = dim3(static_cast<unsigned>(grid.blocks())),
              .block = dim3(kThreads)},
             forward ? grouped_rows_simt_kernel<T, Layout::kByRow> : grouped_rows_simt_kernel<T, Layout::kByTerm>, args,
             grid);
}
template void grouped_rows(const GroupedRows<float>&, Layout, Stream&);
template void grouped_rows(const GroupedRows<double>&, Layout, Stream&);

template <typename T>
void grouped_weights(const GroupedWeights<T>& args, Stream& stream) {
  const TileGrid grid{.row_tiles = tiles_of(args.outputs, kTile), .column_tiles = tiles_of(args.inputs, kTile)};
  run_kernel(stream,
             {.name = "grouped_linear_backward_weight",
              .grid = dim3(static_cast<unsigned>(grid.blocks() * args.groups.count)),
              .block = dim3(kThreads)},
             grouped_weights_simt_kernel<T>, args, grid);
}
template void grouped_weights(const GroupedWeights<float>&, Stream&);
template void grouped_weights(const GroupedWeights<double>&, Stream&);

}  // namespace ashlar::ASHLAR_DEV
