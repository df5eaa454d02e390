#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/base/error.h"
#include "kernels/cuda/dev/vector.h"
#include "kernels/cuda/host/launch_kernel.h"

/// Helpers of kernel launchers: they choose the types of a kernel and divide its work. The result depends only on
/// shapes and addresses, never on the device, so that bits are equal on every GPU.
namespace ashlar::ASHLAR_DEV {

/// f(std::true_type()) or f(std::false_type()).
template <typename F>
void with_flag(bool flag, const F& f) {
  return flag ? f(std::true_type()) : f(std::false_type());
}

constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The number of multiprocessors of the largest supported GPU (an H100 has 132). Kernels with persistent blocks start
/// 1, 2, 4 ... times this number of blocks.
inline constexpr int64_t kMultiprocessors = 132;

inline unsigned num_blocks(int64_t wanted, int64_t most) {
  return static_cast<unsigned>(std::min(std::max<int64_t>(wanted, 1), most));
}

/// Thread layout of a block: `groups` groups of `lanes` threads, each with its own row.
struct RowLayout {
  int lanes = 1, groups = 1;

  int threads() const { return lanes * groups; }
  unsigned blocks(int64_t rows, int64_t most) const { return num_blocks(div_up(rows, groups), most); }
};
/// One thread per `held` vectors of a row, at most most_lanes threads, rounded up to a number that RowGroup accepts.
/// `threads` is the approximate size of a block: a power of two, at least 32.
inline RowLayout row_layout(int64_t vectors, int64_t held, int64_t most_lanes, int64_t threads) {
  int64_t lanes = std::max<int64_t>(1, div_up(vectors, held));
  lanes = std::min(most_lanes, lanes <= 32 ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(lanes)))
                                           : div_up(lanes, 32) * 32);
  return {static_cast<int>(lanes), static_cast<int>(std::max<int64_t>(1, threads / lanes))};
}

/// An elementwise kernel's view of its matrices: rows divided into vectors, `lanes` threads per row. Contiguous
/// matrices are processed as one long row, divided into pieces; the last may be short.
struct Pieces {
  static constexpr int kThreads = 256;
  static constexpr int64_t kPiece = 4096;  // elements

  int64_t rows = 0;
  int cols = 0, last_cols = 0;
  int lanes = 1;
  bool one_row = false;
  bool vector = false;  ///< vectors are aligned

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
/// `views` have one shape, or are absent; `keep_rows`: the kernel needs the row index.
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

/// f(row, column, count) for each vector of W elements of this thread; a row's last may have fewer.
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
