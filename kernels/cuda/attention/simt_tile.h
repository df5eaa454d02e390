#pragma once

#include "kernels/cuda/attention/dropout.h"
#include "kernels/cuda/attention/problem.h"
#include "kernels/cuda/dev/math.h"

/// Tiles of attention without tensor cores, for every storage type and head_dim: arithmetic in the accumulate type A.
/// 256 threads form a square of 16 x 16; thread (y, x) holds rows 4 * y to 4 * y + 3 and columns x, x + 16, x + 32, ...
/// of a tile, so that the 16 threads of a row are neighbours in a warp.
namespace ashlar::ASHLAR_DEV::attention {

inline constexpr int kSimtThreads = 256;
inline constexpr int kSimtTile = 64;   ///< number of queries and of keys of a tile
inline constexpr int kSimtTerms = 32;  ///< number of columns of q and k in shared memory at a time
inline constexpr int kSimtRows = 16;   ///< number of rows of v in shared memory at a time
/// The number of result columns that one block computes. It is limited by the registers of its threads.
template <typename A>
inline constexpr int kSimtWidth = sizeof(A) == 4 ? 128 : 64;
template <typename A>
inline constexpr int kSimtColumns = kSimtWidth<A> / 16;

/// Rows of one head, for a product. Rows from `limit` on and columns from `D` on are read as zero.
template <typename S>
struct SimtRows {
  const S* head;
  int64_t row_stride;
  int first, limit;

  __device__ SimtRows(const HeadRows<const S>& rows, int64_t b, int64_t h, int D, int first_in, int limit_in)
      : head(rows.head(b, h, D)), row_stride(rows.row), first(first_in), limit(limit_in) {}

  template <typename A>
  __device__ A at(int r, int d, int D) const {
    return first + r < limit && d < D ? static_cast<A>(widen(head[(first + r) * row_stride + d])) : A{0};
  }
};

struct SimtThread {
  int index, x, y;
  __device__ SimtThread() : index(threadIdx.x), x(index % 16), y(index / 16) {}
};

/// Shared memory of a block. One column of padding per row avoids bank conflicts.
template <typename A>
struct SimtShared {
  static constexpr int kTermsStride = kSimtTerms + 1;
  static constexpr int kWeightsStride = kSimtTile + 1;

  union {
    A factors[2][kSimtTile * kTermsStride];  ///< for simt_scores: columns of the left rows and of the right rows
    A rows[kSimtRows * kSimtWidth<A>];       ///< for simt_add_weighted: the rows that are multiplied by `weights`
  };
  A weights[kSimtTile * kWeightsStride];
  uint32_t kept[kSimtTile * 4];  ///< dropout bits; each word is for 16 keys of one query
};

/// c[r][s] = the dot product of row 4 * y + r of `left` and row x + 16 * s of `right`. All threads of the block must
/// call the function, which begins with a barrier. Rows beyond the limits are skipped in groups of 4 (left) and 16
/// (right), which helps short sequences.
template <typename S, typename A>
__device__ void simt_scores(A (&c)[4][4], const SimtRows<S>& left, const SimtRows<S>& right, int D,
                            SimtShared<A>& shared, const SimtThread& thread) {
  constexpr int kStride = SimtShared<A>::kTermsStride;
  ASHLAR_UNROLL
  for (int r = 0; r < 4; ++r) {
    ASHLAR_UNROLL
    for (int s = 0; s < 4; ++s) c[r][s] = 0;
  }
  const int strips = left.first + 4 * thread.y < left.limit ? (right.limit - right.first + 15) / 16 : 0;
  ASHLAR_NO_UNROLL
  for (int first = 0; first < D; first += kSimtTerms) {
    __syncthreads();  // all threads have read the previous contents
    for (int i = thread.index; i < kSimtTile * kSimtTerms; i += kSimtThreads) {
      const int r = i / kSimtTerms, d = i % kSimtTerms;
      shared.factors[0][r * kStride + d] = left.template at<A>(r, first + d, D);
      shared.factors[1][r * kStride + d] = right.template at<A>(r, first + d, D);
    }
    __syncthreads();
    const int terms = strips > 0 ? min(kSimtTerms, D - first) : 0;
    ASHLAR_NO_UNROLL
    for (int d = 0; d < terms; ++d) {
      A a[4];
      ASHLAR_UNROLL
      for (int r = 0; r < 4; ++r) a[r] = shared.factors[0][(4 * thread.y + r) * kStride + d];
      ASHLAR_UNROLL
      for (int s = 0; s < 4; ++s) {
        if (s >= strips) break;
        const A b = shared.factors[1][(thread.x + 16 * s) * kStride + d];
        ASHLAR_UNROLL
        for (int r = 0; r < 4; ++r) c[r][s] += a[r] * b;
      }
    }
  }
}

/// c[r][s] += the dot product of row 4 * y + r of `weights` and column first_column + x + 16 * s of `rows`. The threads
/// have the weights in the layout of the result of simt_scores.
template <typename S, typename A>
__device__ void simt_add_weighted(A (&c)[4][kSimtColumns<A>], const A (&weights)[4][4], const SimtRows<S>& rows,
                                  int first_column, int D, SimtShared<A>& shared, const SimtThread& thread) {
  constexpr int kStride = SimtShared<A>::kWeightsStride;
  const int columns = min(kSimtWidth<A>, D - first_column);
  __syncthreads();  // all threads have read the previous weights
  ASHLAR_UNROLL
  for (int r = 0; r < 4; ++r) {
    ASHLAR_UNROLL
    for (int s = 0; s < 4; ++s) shared.weights[(4 * thread.y + r) * kStride + thread.x + 16 * s] = weights[r][s];
  }
  const int last = min(kSimtTile, rows.limit - rows.first);
  ASHLAR_NO_UNROLL
  for (int first = 0; first < last; first += kSimtRows) {
    __syncthreads();  // all threads have read the previous contents
    for (int i = thread.index; i < kSimtRows * kSimtWidth<A>; i += kSimtThreads) {
      const int r = i / kSimtWidth<A>, column = i % kSimtWidth<A>;
      if (column < columns) shared.rows[i] = rows.template at<A>(first + r, first_column + column, D);
    }
    __syncthreads();
    ASHLAR_NO_UNROLL
    for (int k = 0; k < kSimtRows; ++k) {
      A w[4];
      ASHLAR_UNROLL
      for (int r = 0; r < 4; ++r) w[r] = shared.weights[(4 * thread.y + r) * kStride + first + k];
      ASHLAR_UNROLL
      for (int s = 0; s < kSimtColumns<A>; ++s) {
        if (thread.x + 16 * s >= columns) break;
        const A v = shared.rows[k * kSimtWidth<A> + thread.x + 16 * s];
        ASHLAR_UNROLL
        for (int r = 0; r < 4; ++r) c[r][s] += w[r] * v;
      }
    }
  }
}

/// Destination of the rows and columns that a block computes.
template <typename S>
struct SimtOutput {
  S* head;
  int64_t row_stride;
  int first, limit;
  int first_column, D;
  bool accumulate;
};

/// Stores factor(r) * c[r][s], or adds it to the previous values, rounded once.
template <typename S, typename A, typename Factor>
__device__ void simt_store(const A (&c)[4][kSimtColumns<A>], const Factor& factor, const SimtOutput<S>& out,
                           const SimtThread& thread) {
  ASHLAR_UNROLL
  for (int r = 0; r < 4; ++r) {
    const int row = out.first + 4 * thread.y + r;
    if (row >= out.limit) break;
    ASHLAR_UNROLL
    for (int s = 0; s < kSimtColumns<A>; ++s) {
      const int column = out.first_column + thread.x + 16 * s;
      if (column >= out.D) break;
      S* const to = out.head + row * out.row_stride + column;
      A value = factor(r) * c[r][s];
      if (out.accumulate) value += static_cast<A>(widen(*to));
      *to = narrow<S>(value);
    }
  }
}

/// Draws the bits of dropout for queries [t, t + 64) and keys [j, j + 64); each thread draws 16 keys of one query. All
/// threads may read them after the next barrier.
template <typename A>
__device__ void simt_draw(const HeadDropout& dropout, int t, int j, SimtShared<A>& shared, const SimtThread& thread) {
  shared.kept[thread.index] = dropout.keep_bits<16>(t + thread.index / 4, j + thread.index % 4 * 16);
}
template <typename A>
__device__ bool simt_kept(const SimtShared<A>& shared, int query, int key) {
  return (shared.kept[query * 4 + key / 16] >> (key % 16) & 1U) != 0;
}

}  // namespace ashlar::ASHLAR_DEV::attention
