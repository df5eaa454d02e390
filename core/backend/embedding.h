#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// out[n] (+)= scale * table[ids[n] - first_id]. The table has the rows of the ids [first_id, first_id + V). For an
/// id outside this range, kAccumulate adds nothing to the row of `out`, and kOverwrite sets the row to zero. The code
/// that reads the data checks ids against the vocabulary; kernels do not.
struct EmbeddingForward {
  ConstView ids;    ///< [N] kInt32, id of each row
  ConstView table;  ///< [V, C] storage dtype
  MutView out;      ///< [N, C] storage dtype; kAccumulate adds in the accumulate dtype and rounds once
  double scale = 1;
  GradMode mode = GradMode::kOverwrite;
  int64_t first_id = 0;

  auto views() const { return std::tie(ids, table, out); }
};

/// dtable[v - first_id] (+)= scale * sum of dy[n] over rows n with ids[n] == v, in ascending n. `order` lists the row
/// numbers n sorted by ids[n] (stable), so that each table row has one writer and a fixed order of addition. With
/// kOverwrite, a row of dtable whose id does not occur in `ids` is set to zero.
struct EmbeddingBackward {
  ConstView ids;    ///< [N] kInt32, id of each row
  ConstView order;  ///< [N] kInt32, row numbers sorted by id
  ConstView dy;     ///< [N, C] storage dtype
  MutView dtable;   ///< [V, C] accumulate dtype
  double scale = 1;
  GradMode mode = GradMode::kAccumulate;
  int64_t first_id = 0;

  auto views() const { return std::tie(ids, order, dy, dtable); }
};

}  // namespace ashlar
