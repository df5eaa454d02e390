#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// A range whose squares are summed. `first` is its position in its tensor. Chunks of SumSquares::kChunk elements are
/// counted from the start of the tensor, so that the boundary of a range splits one chunk and does not shift the
/// others.
struct SquaresSegment {
  int64_t begin = 0;  ///< elements from the start of x
  int64_t size = 0;
  int64_t first = 0;
  int64_t slot = 0;         ///< index of the sum that it adds to; ascending from segment to segment
  int64_t first_chunk = 0;  ///< number of chunks in earlier segments

  int64_t num_chunks() const;
};

/// sums[slot] = sum of squares over the slot's segments, each square and sum in fp64, chunk sums added in order; 0 for
/// a slot without segments. NaN and infinity propagate to the sum.
struct SumSquares {
  static constexpr int64_t kChunk = 4096;
  ConstView x;         ///< contiguous, storage or accumulate dtype
  ConstView segments;  ///< SquaresSegment [k]
  MutView partials;    ///< fp64 [all chunks], scratch, written
  MutView sums;        ///< fp64 [slots], written

  auto views() const { return std::tie(x, segments, partials, sums); }
};

inline int64_t SquaresSegment::num_chunks() const {
  constexpr int64_t kChunk = SumSquares::kChunk;
  return size == 0 ? 0 : (first % kChunk + size + kChunk - 1) / kChunk;
}

/// Decides the update: norm = sqrt(sum of squares), clip_scale = max_norm / norm if the norm is larger, skip if the
/// norm or one of `also_finite` is not finite. A skip is permanent: later calls change neither `state` nor `kept`, so
/// both hold the values of the first skip.
struct ClipGradients {
  ConstView squares;      ///< fp64 [n], sums of squares of the model's tensors
  ConstView also_finite;  ///< fp64 [any], such as the loss, or absent
  MutView state;          ///< ClipState, read and written
  MutView kept;           ///< fp64 [n], written with `squares`
  double max_norm = 0;    ///< 0: never clip

  auto views() const { return std::tie(squares, also_finite, state, kept); }
};

}  // namespace ashlar
