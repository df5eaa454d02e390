#pragma once

#include <array>
#include <string_view>

#include "core/backend/common.h"

namespace ashlar {

/// A range of a sharded tensor that this rank updates, with its own rule. Tables of them lie in device memory
/// (table_of), uploaded once, ascending in both places.
struct UpdateSegment {
  int64_t flat_begin = 0;    ///< elements from the start of the flat buffers
  int64_t packed_begin = 0;  ///< elements from the start of the packed optimizer state
  int64_t size = 0;
  double lr_multiplier = 1;
  double weight_decay = 0;
};

/// What every update rule reads and writes. A rule updates all segments in one pass, with g = grad * clip.clip_scale
/// and lr_t = scalars.lr * segment.lr_multiplier; its contract holds an Update, its state tensors ([P] accumulate
/// dtype, packed, read and written; `state` lists them) and its hyper-parameters, which have no defaults here. Elements
/// outside every segment are not touched. clip.skip leaves everything untouched.
struct Update {
  ConstView grad;      ///< [F] accumulate dtype, a flat buffer
  MutView master;      ///< accumulate dtype, read and written: [P] packed, or the flat weights [F] themselves
  MutView weights;     ///< [F] storage dtype, written with master rounded once; absent when master is the weights
  ConstView segments;  ///< UpdateSegment [k]
  ConstView scalars;   ///< StepScalars
  ConstView clip;      ///< ClipState
};

/// m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= lr_t * wd * w;  w -= lr_t * (m/c1) / (sqrt(v/c2) + eps).
/// Source: Loshchilov & Hutter 2019 (arXiv:1711.05101) algorithm 2, eps outside the bias-corrected root.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  Update update;
  MutView m, v;
  double beta1 = 0, beta2 = 0, eps = 0;

  std::array<ConstView, 2> state() const { return {m, v}; }
};

/// u = sign(b1 m + (1-b1) g), sign(0) = 0;  w -= lr_t * wd * w;  w -= lr_t * u;  m = b2 m + (1-b2) g.
/// Source: Chen et al. 2023 (arXiv:2302.06675) algorithm 2.
struct Lion {
  static constexpr std::string_view kName = "lion";
  Update update;
  MutView m;
  double beta1 = 0, beta2 = 0;

  std::array<ConstView, 1> state() const { return {m}; }
};

/// A range of which the squares are summed. `first` is its place in its tensor: chunks of SumSquares::kChunk elements
/// are counted from the tensor's start, so that a cut splits one chunk and moves no other.
struct SquaresSegment {
  int64_t begin = 0;  ///< elements from the start of x
  int64_t size = 0;
  int64_t first = 0;
  int64_t slot = 0;         ///< which sum it adds to; ascending from segment to segment
  int64_t first_chunk = 0;  ///< chunks of the segments before it

  int64_t num_chunks() const;
};

/// sums[slot] = sum of squares over the slot's segments, each square and sum in fp64, chunk sums added in order; 0 for
/// a slot without segments. A NaN or infinity shows in its sum.
struct SumSquares {
  static constexpr int64_t kChunk = 4096;
  ConstView x;         ///< contiguous, storage or accumulate dtype
  ConstView segments;  ///< SquaresSegment [k]
  MutView partials;    ///< fp64 [all chunks], scratch, written
  MutView sums;        ///< fp64 [slots], written
};

inline int64_t SquaresSegment::num_chunks() const {
  constexpr int64_t kChunk = SumSquares::kChunk;
  return size == 0 ? 0 : (first % kChunk + size + kChunk - 1) / kChunk;
}

/// Decides what an update does: norm = sqrt(sum of squares), clip_scale = max_norm / norm where the norm is larger,
/// skip where the norm or one of `also_finite` is not finite. A skip stays: then neither `state` nor `kept` changes any
/// more, and they still say what was found first.
struct ClipGradients {
  ConstView squares;      ///< fp64 [n], sums of squares of the model's tensors
  ConstView also_finite;  ///< fp64 [any], such as the loss, or absent
  MutView state;          ///< ClipState, read and written
  MutView kept;           ///< fp64 [n], written with `squares`
  double max_norm = 0;    ///< 0: never clip
};

}  // namespace ashlar
