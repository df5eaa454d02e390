#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// out[n] (+)= scale * table[ids[n] - first_id]. The table has the rows [first_id, first_id + V) of the vocabulary.
/// Output rows with other ids get nothing added (and are zero with kOverwrite). The reader of the data checks ids
/// against the whole vocabulary.
struct EmbeddingForward {
  ConstView ids;    ///< [N] kInt32
  ConstView table;  ///< [V, C] storage dtype
  MutView out;      ///< [N, C] storage dtype, by mode (kAccumulate adds in the accumulate dtype, one rounding)
  double scale = 1;
  GradMode mode = GradMode::kOverwrite;
  int64_t first_id = 0;

  auto views() const { return std::tie(ids, table, out); }
};

/// dtable[v - first_id] (+)= scale * sum of dy[n] over rows n with ids[n] == v, in ascending n. `order` is a stable
/// counting sort of ids (row numbers sorted by id), so that every table row has one writer and a fixed order of
/// addition. kOverwrite also zeroes rows without ids.
struct EmbeddingBackward {
  ConstView ids;    ///< [N] kInt32
  ConstView order;  ///< [N] kInt32
  ConstView dy;     ///< [N, C] storage dtype
  MutView dtable;   ///< [V, C] accumulate dtype
  double scale = 1;
  GradMode mode = GradMode::kAccumulate;
  int64_t first_id = 0;

  auto views() const { return std::tie(ids, order, dy, dtable); }
};

}  // namespace ashlar
