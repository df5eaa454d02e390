#pragma once

#include <algorithm>
#include <cstdint>

#include "core/backend/common.h"
#include "kernels/cpu/parallel_for.h"

namespace ashlar::cpu {

/// Minimum number of elements per thread: cheap = a few flops each, expensive = an exponential.
inline constexpr int64_t kCheapGrain = 16384;
inline constexpr int64_t kExpensiveGrain = 4096;

/// Rows of `cols` elements that form a grain.
inline int64_t rows_grain(int64_t cols, int64_t grain) {
  return std::max<int64_t>(1, grain / std::max<int64_t>(1, cols));
}

/// Rounds one number to storage, and converts it back. fp64 goes to bf16 through round-to-odd, so that it is rounded
/// once and not twice.
inline void store_rounded(double value, float* p) { *p = static_cast<float>(value); }
inline void store_rounded(double value, double* p) { *p = value; }
inline void store_rounded(double value, BF16* p) {
  float f = static_cast<float>(value);
  uint32_t bits = std::bit_cast<uint32_t>(f);
  const double back = f;
  if (back != value && (bits & 0x7fffffffU) < 0x7f800000U && (bits & 1U) == 0) {
    // If the number is inexact and its last bit is even, take the odd neighbour on the other side of `value`.
    const bool away = (value > back) == (value > 0);
    bits = away ? bits + 1 : bits - 1;
    f = std::bit_cast<float>(bits);
  }
  *p = BF16(f);
}
inline double widen(float v) { return v; }
inline double widen(double v) { return v; }
inline double widen(BF16 v) { return static_cast<double>(static_cast<float>(v)); }

/// Typed row n of a view whose dtype has been checked.
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

/// f(row, first column, count) on pieces that cover [rows, cols] once: whole rows, or with `contiguous` pieces of the
/// whole matrix as one long row (row 0).
template <typename F>
void for_row_pieces(Threads& threads, int64_t rows, int64_t cols, bool contiguous, int64_t grain, const F& f) {
  if (contiguous) {
    constexpr int64_t kPiece = 256;  // keeps threads in separate cache lines
    parallel_for(threads, (rows * cols + kPiece - 1) / kPiece, std::max<int64_t>(1, grain / kPiece),
                 [&](int64_t begin, int64_t end) {
                   f(0, begin * kPiece, std::min(rows * cols, end * kPiece) - begin * kPiece);
                 });
  } else {
    parallel_for(threads, rows, rows_grain(cols, grain), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) f(n, int64_t{0}, cols);
    });
  }
}

}  // namespace ashlar::cpu
