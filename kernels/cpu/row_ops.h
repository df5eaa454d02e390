#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/backend/common.h"
#include "kernels/cpu/parallel_for.h"

namespace ashlar::cpu {

/// Minimum number of elements per thread: for cheap work (a few flops per element), and for expensive work (an
/// exponential per element).
inline constexpr int64_t kCheapGrain = 16384;
inline constexpr int64_t kExpensiveGrain = 4096;

/// Minimum number of rows per thread, for rows of `cols` elements and a minimum of `grain` elements per thread.
inline int64_t rows_grain(int64_t cols, int64_t grain) {
  return std::max<int64_t>(1, grain / std::max<int64_t>(1, cols));
}

/// store_rounded rounds one number to its storage type, and widen converts it back. fp64 is converted to bf16 through
/// an fp32 number rounded to odd, so that the result is the same as with a single rounding.
inline void store_rounded(double value, float* p) { *p = static_cast<float>(value); }
inline void store_rounded(double value, double* p) { *p = value; }
inline void store_rounded(double value, BF16* p) {
  float f = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(f);
  const double back = f;
  if (back != value && (bits & 0x7fffffffU) < 0x7f800000U && (bits & 1U) == 0) {
    // Rounds to odd: f is inexact and its last bit is 0. The last bit of its fp32 neighbour on the other side of
    // `value` is 1, so this neighbour replaces f.
    const bool away = (value > back) == (value > 0);
    bits = away ? bits + 1 : bits - 1;
    f = std::bit_cast<float>(bits);
  }
  *p = BF16(f);
}
inline double widen(float v) { return v; }
inline double widen(double v) { return v; }
inline double widen(BF16 v) { return static_cast<double>(static_cast<float>(v)); }

/// Returns row n of a view whose dtype is T's; the caller has checked the dtype.
template <typename T>
const T* row_of(const ConstView& v, int64_t n) {
  return static_cast<const T*>(v.data) + n * v.stride;
}
template <typename T>
T* row_of(const MutView& v, int64_t n) {
  return static_cast<T*>(v.data) + n * v.stride;
}

/// Prefetches row n of a view with gaps between its rows (a column range): the hardware prefetcher stops at gaps.
inline void prefetch_row(const ConstView& v, int64_t n) {
  if (v.contiguous() || n >= v.rows) return;
  constexpr int64_t kLine = 64;
  const int64_t width = size_of(v.dtype);
  const char* const row = static_cast<const char*>(v.data) + n * v.stride * width;
  for (int64_t at = 0; at < v.cols * width; at += kLine) __builtin_prefetch(row + at);
}

/// Calls f(row, first column, count) on pieces that cover matrices of one shape once. If all matrices are contiguous,
/// each is treated as one long row (row 0), and the pieces are parts of this row; otherwise the pieces are whole rows.
/// Only the first matrix must be present; the others may be absent views.
template <typename F>
void for_row_pieces(Threads& threads, std::initializer_list<ConstView> matrices, int64_t grain, const F& f) {
  const ConstView& first = *matrices.begin();
  if (std::all_of(matrices.begin(), matrices.end(), [](const ConstView& v) { return v.contiguous(); })) {
    constexpr int64_t kPiece = 256;  // keeps threads in separate cache lines
    parallel_for(threads, (first.size() + kPiece - 1) / kPiece, std::max<int64_t>(1, grain / kPiece),
                 [&](int64_t begin, int64_t end) {
                   f(0, begin * kPiece, std::min(first.size(), end * kPiece) - begin * kPiece);
                 });
  } else {
    parallel_for(threads, first.rows, rows_grain(first.cols, grain), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) f(n, int64_t{0}, first.cols);
    });
  }
}

}  // namespace ashlar::cpu
