#pragma once

#include <cmath>

#include "core/backend/elementwise.h"
#include "kernels/cuda/dispatch.h"

/// Dropout masks and residual additions, shared by elementwise.cu and residual_norm.cu.
namespace ashlar::ASHLAR_DEV {

/// DropoutArgs in the form of a kernel argument. An element is kept iff uniform(word) >= p, where `word` is its random
/// word. With threshold = ceil(p * 2^24) this is exactly (word >> 8) >= threshold.
struct Dropout {
  bool active = false;
  uint32_t threshold = 0, rng_stream = 0;
  uint64_t seed = 0;
  double scale = 1;        ///< 1 / (1 - p)
  uint64_t first_row = 0;  ///< index of the matrix's row 0 in the global batch
  const StepScalars* scalars = nullptr;
};
inline Dropout dropout_of(const DropoutArgs& a) {
  if (!a.active()) return {};
  return {.active = true,
          .threshold = static_cast<uint32_t>(std::ceil(a.p * 0x1p24)),
          .rng_stream = a.rng_stream,
          .seed = a.seed,
          .scale = 1.0 / (1.0 - a.p),
          .first_row = static_cast<uint64_t>(a.first_sample) * static_cast<uint64_t>(a.sequence_length) +
                       static_cast<uint64_t>(a.row0),
          .scalars = static_cast<const StepScalars*>(a.scalars.data)};
}

/// The dropout mask of one training step, computed inside a kernel.
class DropoutMask {
 public:
  __device__ explicit DropoutMask(const Dropout& dropout)
      : dropout_(dropout), step_(dropout.active ? static_cast<uint32_t>(dropout.scalars->philox_step) : 0) {}

  /// Returns the mask of W elements: bit i is 1 if element (row, c + i) of a matrix of `cols` columns is kept.
  template <int W>
  __device__ __forceinline__ uint32_t kept(int64_t row, int64_t cols, int c) const {
    const uint64_t first =
        (dropout_.first_row + static_cast<uint64_t>(row)) * static_cast<uint64_t>(cols) + static_cast<uint64_t>(c);
    uint32_t mask = 0;
    if (W >= 4 && first % 4 == 0) {
      ASHLAR_UNROLL
      for (int b = 0; b < W / 4; ++b) {
        const Philox::Counter words = block(first / 4 + static_cast<uint64_t>(b));
        ASHLAR_UNROLL
        for (int i = 0; i < 4; ++i) mask |= bit(words[static_cast<size_t>(i)]) << (4 * b + i);
      }
      return mask;
    }
    // Here the vector may begin in the middle of a Philox block of four words.
    Philox::Counter words = block(first / 4);
#pragma unroll 1
    for (int i = 0; i < W; ++i) {
      const uint64_t e = first + static_cast<uint64_t>(i);
      if (i > 0 && e % 4 == 0) words = block(e / 4);
      const uint32_t low = e % 2 == 0 ? words[0] : words[1], high = e % 2 == 0 ? words[2] : words[3];
      mask |= bit(e % 4 < 2 ? low : high) << i;
    }
    return mask;
  }
  template <typename A>
  __device__ __forceinline__ A scale() const {
    return static_cast<A>(dropout_.scale);
  }
  __device__ __forceinline__ bool active() const { return dropout_.active; }

 private:
  __device__ __forceinline__ Philox::Counter block(uint64_t index) const {
    return Philox::apply({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), dropout_.rng_stream, step_},
                         {static_cast<uint32_t>(dropout_.seed), static_cast<uint32_t>(dropout_.seed >> 32)});
  }
  __device__ __forceinline__ uint32_t bit(uint32_t word) const { return word >> 8 >= dropout_.threshold ? 1 : 0; }

  const Dropout& dropout_;
  uint32_t step_;
};

/// Applies dropout to W values: multiplies them by mask / (1 - p).
template <typename A, int W>
__device__ __forceinline__ void drop(const DropoutMask& mask, int64_t row, int64_t cols, int c, A (&values)[W]) {
  if (!mask.active()) return;
  const uint32_t kept = mask.kept<W>(row, cols, c);
  const A scale = mask.scale<A>();
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) values[i] = (kept >> i & 1U) != 0 ? values[i] * scale : A{0};
}

template <typename T>
struct ResidualRows {
  Rows<const T> x, delta, delta2;  ///< x and delta2 may be absent
  Rows<T> y;
  Dropout dropout, dropout2;
  int64_t cols;           ///< number of columns; the dropout index of (row, c) is (first_row + row) * cols + c
  AccumulateOf<T> scale;  ///< factor of delta and delta2
};
/// Returns the arguments in the form of a kernel argument. `rows` is a function that converts a view to Rows.
template <typename T, typename MakeRows>
ResidualRows<T> residual_rows(const ResidualForward& a, const MakeRows& rows) {
  return {.x = rows(a.x),
          .delta = rows(a.delta),
          .delta2 = rows(a.delta2),
          .y = rows(a.y),
          .dropout = dropout_of(a.dropout),
          .dropout2 = a.delta2 ? dropout_of(a.dropout2) : Dropout{},
          .cols = a.delta.cols,
          .scale = static_cast<AccumulateOf<T>>(a.scale)};
}

/// Returns x + scale * dropout(delta) [+ scale * dropout2(delta2)] for the vector at (row, c), rounded once. `read`
/// loads a vector from a pointer.
template <typename T, int W, typename Read>
__device__ __forceinline__ Vec<T, W> residual_sum(const ResidualRows<T>& a, const DropoutMask& first,
                                                  const DropoutMask& second, int64_t row, int c, const Read& read) {
  using A = AccumulateOf<T>;
  const Vec<T, W> delta = read(a.delta[row] + c);
  Vec<T, W> x{}, delta2{};
  if (a.x) x = read(a.x[row] + c);
  if (a.delta2) delta2 = read(a.delta2[row] + c);
  A sum[W], second_branch[W];
  widen(delta, sum);
  drop(first, row, a.cols, c, sum);
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) sum[i] = fused(sum[i], a.scale, static_cast<A>(x.wide(i)));
  if (a.delta2) {
    widen(delta2, second_branch);
    drop(second, row, a.cols, c, second_branch);
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) sum[i] = fused(second_branch[i], a.scale, sum[i]);
  }
  return narrow<T>(sum);
}

}  // namespace ashlar::ASHLAR_DEV
