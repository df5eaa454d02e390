#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// A contiguous range of one tensor whose squares are summed, in chunks of SumSquares::kChunk elements. Chunk
/// boundaries are counted from the start of the tensor, so that they do not depend on where the range begins.
struct SquaresSegment {
  int64_t begin = 0;  ///< offset of the range in the buffer x, in elements
  int64_t size = 0;
  int64_t first = 0;        ///< offset of the range in its tensor, in elements
  int64_t slot = 0;         ///< index of the sum to which the range adds; never decreases from segment to segment
  int64_t first_chunk = 0;  ///< number of chunks in earlier segments

  int64_t num_chunks() const;
};

/// sums[slot] = sum of the squares of x in all segments with that slot; 0 for a slot without segments. Squares and sums
/// are in fp64, and chunk sums are added in order. NaN and infinity propagate to the sum.
struct SumSquares {
  static constexpr int64_t kChunk = 4096;
  ConstView x;         ///< contiguous vector of storage or accumulate dtype
  ConstView segments;  ///< table of k SquaresSegment (table_of)
  MutView partials;    ///< fp64 [number of chunks], scratch memory for the sums of chunks
  MutView sums;        ///< fp64 [number of slots], written

  auto views() const { return std::tie(x, segments, partials, sums); }
};

inline int64_t SquaresSegment::num_chunks() const {
  constexpr int64_t kChunk = SumSquares::kChunk;
  return size == 0 ? 0 : (first % kChunk + size + kChunk - 1) / kChunk;
}

/// Computes the ClipState of a step: norm = sqrt(sum of `squares`); clip_scale = max_norm / norm if norm > max_norm,
/// else 1; skip = 1 if the norm or an element of `also_finite` is not finite. A skip is permanent: later calls change
/// neither `state` nor `kept`, so both contain the values of the first skipped step.
struct ClipGradients {
  ConstView squares;      ///< fp64 [n], for each tensor of the model the sum of its squared gradients
  ConstView also_finite;  ///< fp64 vector of other values that must be finite, such as the loss; or absent
  MutView state;          ///< ClipState in device memory, read and written
  MutView kept;           ///< fp64 [n], written: a copy of `squares`
  double max_norm = 0;    ///< 0: no clipping

  auto views() const { return std::tie(squares, also_finite, state, kept); }
};

}  // namespace ashlar
