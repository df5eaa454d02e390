#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class RopeStyle : uint8_t { kHalf, kInterleaved };
constexpr auto names_of(RopeStyle) { return enum_names<RopeStyle>("half", "interleaved"); }

/// Applies rotary positions to the leading heads of each row; the other heads are copied.
/// Pair (a, b) of frequency m at position t -> (a cos - b sin, b cos + a sin), cos and sin read from the tables;
/// pair m = dims (m, m + dims/2) for half, (2m, 2m+1) for interleaved; dims >= `dims` of a head are copied.
/// inverse rotates back: it is the backward. Source: Su et al. 2021 (arXiv:2104.09864) eq. 34.
struct Rope {
  ConstView x;                ///< [N, heads*head_dim] storage dtype, read, rows may be strided
  MutView y;                  ///< same shape, by mode; may be x itself when kOverwrite
  ConstView positions;        ///< [N] kInt32, row of the tables for each row
  ConstView cos, sin;         ///< [P, dims/2] accumulate dtype
  int64_t heads = 0;          ///< heads in a row
  int64_t rotated_heads = 0;  ///< number of leading heads that are rotated
  int64_t head_dim = 0;
  int64_t dims = 0;  ///< rotated dims of a head, even
  RopeStyle style = RopeStyle::kHalf;
  bool inverse = false;
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(x, y, positions, cos, sin); }
};

}  // namespace ashlar
