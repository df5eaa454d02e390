#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "core/backend/common.h"

namespace ashlar {

/// A contiguous range of one tensor that this rank updates, with the hyper-parameters of the tensor. The table of all
/// segments is copied once to device memory (table_of). Both flat_begin and packed_begin ascend in it.
struct UpdateSegment {
  int64_t flat_begin = 0;    ///< offset of the range in the flat buffers, in elements
  int64_t packed_begin = 0;  ///< offset of the range in the packed optimizer state, in elements
  int64_t size = 0;
  double lr_multiplier = 1;
  double weight_decay = 0;
  // Position in the global tensor, for stochastic rounding:
  int64_t first = 0;         ///< index of the range's first element in this rank's part of the tensor, in row order
  int64_t global_begin = 0;  ///< index of the part's first element in the global tensor
  int64_t cols = 1;          ///< number of columns of the part
  int64_t row_gap = 0;       ///< number of columns of the global tensor that the part lacks
  uint32_t rng_stream = 0;   ///< identifies the tensor

  /// Returns the index in the global tensor of element i of the range.
  constexpr uint64_t global_index(int64_t i) const {
    const int64_t at = first + i;
    return static_cast<uint64_t>(global_begin + at + (row_gap == 0 ? 0 : at / cols * row_gap));
  }
  /// Returns the number of elements from element i to the end of the range that are contiguous in the global tensor.
  int64_t contiguous(int64_t i) const {
    return row_gap == 0 ? size - i : std::min(size - i, cols - (first + i) % cols);
  }
};

/// Inputs and outputs that all update rules (AdamW, Lion) share. A rule updates all segments in one kernel, with g =
/// grad * clip.clip_scale and lr_t = scalars.lr * segment.lr_multiplier. The args struct of a rule has an Update, the
/// state tensors ([P] packed, read and written; `state` lists them) and the hyper-parameters, all of which the caller
/// must set. P is the number of elements that this rank owns. Elements outside all segments are not changed. If
/// clip.skip is set, nothing is changed.
///   The state tensors hold the accumulate dtype or, if that is fp32, bf16. A rule always computes in fp32 or fp64, and
/// computes the weight from the new state before that is rounded. bf16 state is rounded stochastically: its bits are
/// the upper half of (bits of the fp32 value + r), r uniform in [0, 2^16), so that the mean over r is the value itself;
/// a NaN stays one. For the element with index e in the global tensor, r is the lower half of the word e%4 of Philox
/// for the first state tensor and the upper half for the second, with key = seed and counter {lower 32 bits of e/4,
/// upper 32 bits of e/4, segment.rng_stream, scalars.philox_step}. So the draws are the same on any mesh.
struct Update {
  ConstView grad;      ///< [F] accumulate dtype, the flat gradient buffer
  MutView master;      ///< accumulate dtype, read and written: packed master weights [P] or, without them, the flat
                       ///< weights [F]
  MutView weights;     ///< [F] storage dtype, written: the new master weights, rounded once; absent if `master` is the
                       ///< flat weights
  ConstView segments;  ///< table of k UpdateSegment
  ConstView scalars;   ///< StepScalars in device memory
  ConstView clip;      ///< ClipState in device memory
  uint64_t seed = 0;   ///< of stochastic rounding

  auto views() const { return std::tie(grad, master, weights, segments, scalars, clip); }
};

/// m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= lr_t * wd * w;  w -= lr_t * (m/c1) / (sqrt(v/c2) + eps). Here b1
/// = beta1, b2 = beta2, wd is the segment's weight_decay, w the master weight, and c1, c2 are the bias corrections in
/// StepScalars.
/// Source: Loshchilov & Hutter 2019 (arXiv:1711.05101) algorithm 2, eps outside the bias-corrected root.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  Update update;
  MutView m, v;
  double beta1 = 0, beta2 = 0, eps = 0;

  std::array<ConstView, 2> state() const { return {m, v}; }

  auto views() const { return std::tie(update, m, v); }
};

/// u = sign(b1 m + (1-b1) g), sign(0) = 0;  w -= lr_t * wd * w;  w -= lr_t * u;  m = b2 m + (1-b2) g. Here b1 = beta1,
/// b2 = beta2, wd is the segment's weight_decay, and w the master weight.
/// Source: Chen et al. 2023 (arXiv:2302.06675) algorithm 2.
struct Lion {
  static constexpr std::string_view kName = "lion";
  Update update;
  MutView m;
  double beta1 = 0, beta2 = 0;

  std::array<ConstView, 1> state() const { return {m}; }

  auto views() const { return std::tie(update, m); }
};

}  // namespace ashlar
