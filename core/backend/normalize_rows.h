#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Lower bound of the Euclidean length by which a row is divided (eps of torch.nn.functional.normalize).
inline constexpr double kShortestRow = 1e-12;

/// y[v] = w[v] * inverse[v], with inverse[v] = 1 / max(|w[v]|, kShortestRow) and |w[v]| the Euclidean length of row v.
struct NormalizeRows {
  ConstView w;      ///< [V, C] storage dtype
  MutView y;        ///< [V, C] storage dtype, written
  MutView inverse;  ///< [V] accumulate dtype, written

  auto views() const { return std::tie(w, y, inverse); }
};

/// Gradient of NormalizeRows: dw[v] (+)= inverse[v] * (dy[v] - u (u . dy[v])) with u = w[v] * inverse[v]. If the
/// Euclidean length of row v is less than kShortestRow, dw[v] (+)= inverse[v] * dy[v].
struct NormalizeRowsBackward {
  ConstView dy;       ///< [V, C] accumulate dtype
  ConstView w;        ///< [V, C] storage dtype
  ConstView inverse;  ///< [V] accumulate dtype
  MutView dw;         ///< [V, C] accumulate dtype, written or accumulated (mode); must not alias dy
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, w, inverse, dw); }
};

}  // namespace ashlar
