#pragma once

#include "core/backend/common.h"

namespace ashlar {

/// Minimum of a row's length (eps of PyTorch's normalize).
inline constexpr double kShortestRow = 1e-12;

/// y[v] = w[v] * inverse[v], with inverse[v] = 1 / max(|w[v]|, kShortestRow) and |w[v]| the Euclidean length of row v.
struct NormalizeRows {
  ConstView w;      ///< [V, C] storage dtype
  MutView y;        ///< [V, C] storage dtype, written
  MutView inverse;  ///< [V] accumulate dtype, written

  auto views() const { return std::tie(w, y, inverse); }
};

/// dw[v] (+)= inverse[v] * (dy[v] - u (u . dy[v])), u = w[v] * inverse[v]; of a row shorter than kShortestRow
/// inverse[v]
/// * dy[v].
struct NormalizeRowsBackward {
  ConstView dy;       ///< [V, C] accumulate dtype
  ConstView w;        ///< [V, C] storage dtype
  ConstView inverse;  ///< [V] accumulate dtype
  MutView dw;         ///< [V, C] accumulate dtype, by mode; may not be dy
  GradMode mode = GradMode::kOverwrite;

  auto views() const { return std::tie(dy, w, inverse, dw); }
};

}  // namespace ashlar
