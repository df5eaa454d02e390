#pragma once

#include <array>
#include <string_view>

#include "core/backend/common.h"

namespace ashlar {

/// A range of a sharded tensor that this rank updates, with its own hyper-parameters. Tables of segments are uploaded
/// once to device memory (table_of), and ascend in both positions.
struct UpdateSegment {
  int64_t flat_begin = 0;    ///< elements from the start of the flat buffers
  int64_t packed_begin = 0;  ///< elements from the start of the packed optimizer state
  int64_t size = 0;
  double lr_multiplier = 1;
  double weight_decay = 0;
};

/// Common inputs and outputs of update rules. A rule updates all segments in one pass, with g = grad * clip.clip_scale
/// and lr_t = scalars.lr * segment.lr_multiplier. The args struct of a rule has an Update, the state tensors ([P]
/// accumulate dtype, packed, read and written; listed by `state`) and the hyper-parameters, without defaults. Elements
/// outside all segments are not changed. If clip.skip is set, nothing is changed.
struct Update {
  ConstView grad;      ///< [F] accumulate dtype, a flat buffer
  MutView master;      ///< accumulate dtype, read and written: [P] packed, or the flat weights [F] themselves
  MutView weights;     ///< [F] storage dtype, written with master rounded once; absent when master is the weights
  ConstView segments;  ///< UpdateSegment [k]
  ConstView scalars;   ///< StepScalars
  ConstView clip;      ///< ClipState

  auto views() const { return std::tie(grad, master, weights, segments, scalars, clip); }
};

/// m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  w -= lr_t * wd * w;  w -= lr_t * (m/c1) / (sqrt(v/c2) + eps).
/// Source: Loshchilov & Hutter 2019 (arXiv:1711.05101) algorithm 2, eps outside the bias-corrected root.
struct AdamW {
  static constexpr std::string_view kName = "adamw";
  Update update;
  MutView m, v;
  double beta1 = 0, beta2 = 0, eps = 0;

  std::array<ConstView, 2> state() const { return {m, v}; }

  auto views() const { return std::tie(update, m, v); }
};

/// u = sign(b1 m + (1-b1) g), sign(0) = 0;  w -= lr_t * wd * w;  w -= lr_t * u;  m = b2 m + (1-b2) g.
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
