#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/base/error.h"
#include "kernels/cuda/dev/vector.h"
#include "kernels/cuda/host/launch_kernel.h"

/// Helpers of kernel launchers: they choose the types of a kernel and divide its work. What they choose depends only on
/// shapes and addresses, never on the device, so that bits are equal on every GPU.
namespace ashlar::ASHLAR_DEV {

/// Calls f(std::true_type()) if `flag` is true, otherwise f(std::false_type()).
template <typename F>
void with_flag(bool flag, const F& f) {
  return flag ? f(std::true_type()) : f(std::false_type());
}

/// Calls f(A()), where A is the type of an accumulate dtype: double for fp64, otherwise float.
template <typename F>
void with_accumulate(DType dtype, const F& f) {
  if (dtype == DType::kFloat64) return f(double());
  return f(float());
}

constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The number of multiprocessors of an H100. Grids are sized for it on every GPU, so that they depend on the shape
/// alone. Kernels whose blocks loop over rows start at most a small multiple of this number of blocks.
inline constexpr int64_t kMultiprocessors = 132;

inline unsigned num_blocks(int64_t wanted, int64_t most) {
  return static_cast<unsigned>(std::min(std::max<int64_t>(wanted, 1), most));
}

/// Thread layout of a block: `groups` groups of `lanes` threads. Each group processes one row at a time.
struct RowLayout {
  int lanes = 1, groups = 1;

  int threads() const { return lanes * groups; }
  unsigned blocks(int64_t rows, int64_t most) const { return num_blocks(div_up(rows, groups), most); }
};
/// Returns a layout whose groups have one thread per `held` vectors of a row, rounded up to a number that RowGroup
/// accepts, and at most `most_lanes` threads. `threads` is the approximate number of threads of a block; only the
/// number of groups depends on it.
inline RowLayout row_layout(int64_t vectors, int64_t held, int64_t most_lanes, int64_t threads) {
  int64_t lanes = std::max<int64_t>(1, div_up(vectors, held));
  lanes = std::min(most_lanes, lanes <= 32 ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(lanes)))
                                           : div_up(lanes, 32) * 32);
  return {static_cast<int>(lanes), static_cast<int>(std::max<int64_t>(1, threads / lanes))};
}

/// How an elementwise kernel divides its matrices: rows are split into vectors, and `lanes` threads process a row.
/// Contiguous matrices are processed as one long row that is cut into pieces of kPiece elements; a piece then takes the
/// place of a row, and the last piece may be shorter.
struct Pieces {
  static constexpr int kThreads = 256;
  static constexpr int64_t kPiece = 4096;  // number of elements of a piece

  int64_t rows = 0;
  int cols = 0, last_cols = 0;
  int lanes = 1;
  bool one_row = false;
  bool vector = false;  ///< true if all vectors are aligned, so that vector loads and stores may be used

  unsigned blocks() const { return num_blocks(div_up(rows, kThreads / lanes), 16 * kMultiprocessors); }
  template <typename T>
  Rows<const T> of(const ConstView& v) const {
    return {static_cast<const T*>(v.data), one_row ? kPiece : v.stride};
  }
  template <typename T>
  Rows<T> of(const MutView& v) const {
    return {static_cast<T*>(v.data), one_row ? kPiece : v.stride};
  }
};
/// Returns how an elementwise kernel divides matrices that all have the shape of `first`; the other views may be
/// absent. `keep_rows` is true if the kernel needs the row index; rows are then never merged into one. `width` is the
/// number of elements of a vector.
template <typename... Views>
Pieces split_pieces(bool keep_rows, int64_t width, const ConstView& first, const Views&... views) {
  Pieces p{.rows = first.rows, .cols = static_cast<int>(first.cols), .last_cols = static_cast<int>(first.cols)};
  p.one_row = !keep_rows && first.contiguous() && (views.contiguous() && ...) && first.cols > 0;
  if (p.one_row) {
    p.rows = div_up(first.size(), Pieces::kPiece);
    p.cols = Pieces::kPiece;
    p.last_cols = static_cast<int>(first.size() - (p.rows - 1) * Pieces::kPiece);
  }
  const auto aligned = [&](ConstView v) {
    if (p.one_row) v.rows = 1;
    return rows_aligned(v, width);
  };
  p.vector = aligned(first) && (aligned(views) && ...);
  const int64_t vectors = div_up(p.rows <= 1 ? p.last_cols : p.cols, width);
  p.lanes =
      row_layout(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, vectors))), 1, Pieces::kThreads, 1).lanes;
  return p;
}

/// Calls f(row, column, count) for each vector that this thread processes. A vector has count = W elements; the last
/// vector of a row may have fewer.
template <int W, typename F>
__device__ __forceinline__ void for_each_vector(const Pieces& p, const F& f) {
  const int group = static_cast<int>(threadIdx.x) / p.lanes, rank = static_cast<int>(threadIdx.x) % p.lanes;
  const int64_t step = int64_t{gridDim.x} * (Pieces::kThreads / p.lanes);
  for (int64_t row = int64_t{blockIdx.x} * (Pieces::kThreads / p.lanes) + group; row < p.rows; row += step) {
    const int cols = row + 1 < p.rows ? p.cols : p.last_cols;
    for (int c = rank * W; c < cols; c += p.lanes * W) f(row, c, min(W, cols - c));
  }
}

}  // namespace ashlar::ASHLAR_DEV
