#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class RopeStyle : uint8_t { kHalf, kInterleaved };
constexpr auto names_of(RopeStyle) { return enum_names<RopeStyle>("half", "interleaved"); }

/// Applies rotary position embeddings to the first `rotated_heads` heads of each row; the other heads are copied. The
/// pair (a, b) with frequency index m at position t becomes (a cos - b sin, b cos + a sin), with cos and sin from row t
/// and column m of the tables. Pair m is the elements (m, m + dims/2) of a head for kHalf, and (2m, 2m+1) for
/// kInterleaved. The elements of a head from index `dims` on are copied. `inverse` reverses the rotation, as backward
/// needs.
/// Source: Su et al. 2021 (arXiv:2104.09864) eq. 34.
struct Rope {
  ConstView x;                ///< [N, heads*head_dim] storage dtype, read, rows may be strided
  MutView y;                  ///< shape and dtype of x, written or accumulated (mode); may alias x if kOverwrite
  ConstView positions;        ///< [N] kInt32, position of each row, which selects a row of cos and sin
  ConstView cos, sin;         ///< [P, dims/2] accumulate dtype, tables for P positions
  int64_t heads = 0;          ///< number of heads in a row
  int64_t rotated_heads = 0;  ///< number of leading heads that are rotated
  int64_t head_dim = 0;
  int64_t dims = 0;  ///< number of rotated elements of a head, even
  RopeStyle style = RopeStyle::kHalf;
  bool inverse = false;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(x, y, positions, cos, sin); }
};

}  // namespace ashlar
