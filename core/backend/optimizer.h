#pragma once

#include <span>

#include "core/backend/common.h"

namespace ashlar {

/// A range of a flat slab with its own rule.
struct AdamWSegment {
  int64_t offset = 0;  ///< elements from the slab's start
  int64_t size = 0;
  double lr_multiplier = 1;
  double weight_decay = 0;
};

/// AdamW over flat slabs, one pass: g = grad * clip.clip_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
/// w -= lr_t * wd * w;  w -= lr_t * (m/c1) / (sqrt(v/c2) + eps), lr_t = scalars.lr * segment.lr_multiplier.
/// Elements outside every segment are not touched. clip.skip leaves everything untouched.
/// Source: Loshchilov & Hutter 2019 (arXiv:1711.05101) algorithm 2, eps outside the bias-corrected root.
struct AdamW {
  ConstView grad;   ///< [S] accumulate dtype
  MutView master;   ///< [S] accumulate dtype, read and written
  MutView m, v;     ///< [S] accumulate dtype, read and written
  MutView weights;  ///< [S] storage dtype, written with master rounded once; absent when master is the storage
  std::span<const AdamWSegment> segments;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  ConstView scalars;  ///< StepScalars
  ConstView clip;     ///< ClipState
};

/// partials[i] = sum of squares of x[4096 i .. 4096 (i+1)), each square and sum in double; a NaN or infinity shows in
/// its partial. The chunks are fixed from the tensor's start, so that a norm does not depend on thread or mesh.
struct SumSquares {
  static constexpr int64_t kChunk = 4096;
  ConstView x;       ///< [n] contiguous
  MutView partials;  ///< [num_chunks(n)] fp64, written

  static constexpr int64_t num_chunks(int64_t n) { return (n + kChunk - 1) / kChunk; }
};

}  // namespace ashlar
