#pragma once

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
};

/// Inputs and outputs that all update rules (AdamW, Lion) share. A rule updates all segments in one kernel, with g =
/// grad * clip.clip_scale and lr_t = scalars.lr * segment.lr_multiplier. The args struct of a rule has an Update, the
/// state tensors ([P] accumulate dtype, packed, read and written; `state` lists them) and the hyper-parameters, all of
/// which the caller must set. P is the number of elements that this rank owns. Elements outside all segments are not
/// changed. If clip.skip is set, nothing is changed.
struct Update {
  ConstView grad;      ///< [F] accumulate dtype, the flat gradient buffer
  MutView master;      ///< accumulate dtype, read and written: packed master weights [P] or, without them, the flat
                       ///< weights [F]
  MutView weights;     ///< [F] storage dtype, written: the new master weights, rounded once; absent if `master` is the
                       ///< flat weights
  ConstView segments;  ///< table of k UpdateSegment
  ConstView scalars;   ///< StepScalars in device memory
  ConstView clip;      ///< ClipState in device memory

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
