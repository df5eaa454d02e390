#pragma once

#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

/// The thread layouts of the norm kernels, and the norm of one row by the group of threads that holds it in registers.
namespace ashlar::ASHLAR_DEV {

/// Number of vectors of a row that one thread keeps in registers; together they have 16 elements of bf16 or fp32, or 4
/// of fp64. In a group of `lanes` threads, vector p of thread r is vector p * lanes + r of the row.
template <typename T>
inline constexpr int kHeld = sizeof(T) == 4 ? 4 : 2;
inline constexpr int kMaxRowLanes = 512;
/// Width of the widest row that a group of threads can keep in registers: 8192 columns of bf16 or fp32, 2048 of fp64.
template <typename T>
inline constexpr int64_t kMaxHeldColumns = int64_t{kMaxRowLanes} * kHeld<T>* kWidth<T>;

/// The part of a row that one thread keeps in registers, in the storage type.
template <typename T, bool kVector>
struct HeldRow {
  static constexpr int W = kWidth<T>;
  Vec<T, W> vec[kHeld<T>];

  __device__ __forceinline__ static int column(int p, int lanes, int rank) { return (p * lanes + rank) * W; }
  __device__ __forceinline__ void load(const T* row, int cols, int lanes, int rank) {
    ASHLAR_UNROLL
    for (int p = 0; p < kHeld<T>; ++p) {
      const int c = column(p, lanes, rank);
      vec[p] = load_row<kVector, W>(row + c, cols - c);
    }
  }
  __device__ __forceinline__ void keep_packed() {
    ASHLAR_UNROLL
    for (int p = 0; p < kHeld<T>; ++p) ASHLAR_DEV::keep_packed(vec[p]);
  }
  __device__ __forceinline__ void fill(T value) {
    ASHLAR_UNROLL
    for (int p = 0; p < kHeld<T>; ++p) {
      vec[p] = Vec<T, W>{};
      for (int i = 0; i < W; ++i) vec[p].set(i, value);
    }
  }
};

/// The factors by which a norm multiplies the columns: gamma + offset, or 1 if gamma is absent.
template <typename T, bool kVector>
struct HeldGain {
  using A = AccumulateOf<T>;
  HeldRow<T, kVector> gamma;
  A offset = 0;

  __device__ __forceinline__ void load(const T* data, bool unit_offset, int cols, int lanes, int rank) {
    if (data != nullptr) {
      gamma.load(data, cols, lanes, rank);
      offset = unit_offset ? A{1} : A{0};
    } else {
      gamma.fill(narrow<T>(A{1}));
    }
  }
  __device__ __forceinline__ A operator()(int p, int i) const { return gamma.vec[p].wide(i) + offset; }
};

/// Arguments of the norm kernels, except the input rows.
template <typename T>
struct NormParams {
  using A = AccumulateOf<T>;
  const T* gamma;
  const T* beta;
  Rows<T> y;
  A* mean;  ///< null for RMSNorm
  A* rstd;
  A eps;
  bool unit_offset;
  int64_t rows;
  int cols;       ///< number of columns of a row, or of a head
  int gain_step;  ///< offset between the gains of adjacent heads; 0 if all heads share the gains

  /// Moves all pointers to head h: to its columns, gains and statistics. A block with blockIdx.y = h processes head h.
  __device__ __forceinline__ void select_head(Rows<const T>& x, unsigned h) {
    x.data += int64_t{h} * cols;
    y.data += int64_t{h} * cols;
    if (gamma != nullptr) gamma += int64_t{h} * gain_step;
    if (beta != nullptr) beta += int64_t{h} * gain_step;
    if (mean != nullptr) mean += int64_t{h} * rows;
    rstd += int64_t{h} * rows;
  }
};
/// Returns NormParams::gain_step for rows of `cols` columns in `heads` heads. `gains` is gamma or beta, or absent. It
/// has `cols` elements if each head has separate gains.
inline int gain_step(const ConstView& gains, int64_t cols, int64_t heads) {
  return gains && gains.size() == cols ? static_cast<int>(cols / heads) : 0;
}
template <typename T>
NormParams<T> norm_params(const NormForward& a) {
  using A = AccumulateOf<T>;
  return {.gamma = static_cast<const T*>(a.gamma.data),
          .beta = static_cast<const T*>(a.beta.data),
          .y = rows_of<T>(a.y),
          .mean = a.variant.type == NormType::kLayerNorm ? static_cast<A*>(a.mean.data) : nullptr,
          .rstd = static_cast<A*>(a.rstd.data),
          .eps = static_cast<A>(a.variant.eps),
          .unit_offset = a.variant.unit_offset,
          .rows = a.x.rows,
          .cols = static_cast<int>(a.x.cols / a.heads),
          .gain_step = gain_step(a.gamma ? a.gamma : a.beta, a.x.cols, a.heads)};
}
/// Thread layout for norm_forward and residual_norm_forward: threads per row and rows per block.
template <typename T>
RowLayout norm_layout(int64_t cols) {
  return row_layout(div_up(cols, kWidth<T>), kHeld<T>, kMaxRowLanes, 256);
}
/// Thread layout for the kernels that compute one sum per row.
template <typename T>
RowLayout sums_layout(int64_t cols) {
  return row_layout(div_up(cols, kWidth<T>), 4, kMaxRowLanes, 256);
}

/// The grid of kernels that apply given means and rstds. Each thread processes a fixed vector of columns and
/// loops over rows. grid.x divides the columns into tiles of `lanes` vectors; grid.y divides the rows.
struct ColumnTiles {
  static constexpr int kThreads = 256;
  int lanes = 1;
  dim3 grid;
};
inline ColumnTiles column_tiles(int64_t rows, int64_t cols, int64_t width) {
  const int64_t vectors = std::max<int64_t>(1, div_up(cols, width));
  const auto lanes = std::min<uint64_t>(ColumnTiles::kThreads, std::bit_ceil(static_cast<uint64_t>(vectors)));
  ColumnTiles tiles{.lanes = static_cast<int>(lanes), .grid = dim3(1, 1, 1)};
  tiles.grid.x = static_cast<unsigned>(div_up(vectors, tiles.lanes));
  tiles.grid.y = num_blocks(div_up(rows, ColumnTiles::kThreads / tiles.lanes), kMultiprocessors);
  return tiles;
}

/// True if every vector of the rows is whole and aligned, so that a kernel may use vector loads and stores.
template <typename... Views>
bool norm_vectors(int64_t cols, int64_t width, const Views&... views) {
  return cols % width == 0 && rows_aligned_for(width, views...);
}

/// Normalizes row number `row`, which the group has loaded into x. All threads of the block must call it; a group whose
/// `row` is beyond the last row stores nothing.
template <typename T, bool kVector>
__device__ __forceinline__ void norm_held_row(const NormParams<T>& a, RowGroup<AccumulateOf<T>>& group,
                                              HeldRow<T, kVector>& x, const HeldGain<T, kVector>& gain,
                                              const HeldRow<T, kVector>& beta, int64_t row) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  // 1. mean
  A mean = 0;
  if (a.mean != nullptr) {
    A sum = 0;
    ASHLAR_UNROLL
    for (int p = 0; p < kHeld<T>; ++p) {
      ASHLAR_UNROLL
      for (int i = 0; i < W; ++i) sum += x.vec[p].wide(i);
    }
    mean = group.reduce(sum, Add()) / static_cast<A>(a.cols);
    x.keep_packed();
  }
  // 2. rstd
  A squares = 0;
  ASHLAR_UNROLL
  for (int p = 0; p < kHeld<T>; ++p) {
    const int count = a.cols - x.column(p, group.lanes, group.rank);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      const A v = x.vec[p].wide(i) - mean;
      if (i < count) squares += v * v;
    }
  }
  const A rstd = A{1} / root(group.reduce(squares, Add()) / static_cast<A>(a.cols) + a.eps);
  x.keep_packed();
  if (row >= a.rows) return;
  if (group.rank == 0) {
    if (a.mean != nullptr) a.mean[row] = mean;
    a.rstd[row] = rstd;
  }
  // 3. normalize and store
  T* const y = a.y[row];
  ASHLAR_UNROLL
  for (int p = 0; p < kHeld<T>; ++p) {
    const int c = x.column(p, group.lanes, group.rank);
    A out[W];
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      out[i] = fused((x.vec[p].wide(i) - mean) * rstd, gain(p, i), beta.vec[p].wide(i));
    }
    store_row<kVector>(y + c, narrow<T>(out), a.cols - c);
  }
}

}  // namespace ashlar::ASHLAR_DEV
