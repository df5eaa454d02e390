#pragma once

#include "core/backend/common.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class NormType : uint8_t { kLayerNorm, kRmsNorm };
constexpr auto names_of(NormType) { return enum_names<NormType>("layernorm", "rmsnorm"); }

/// The kind of norm. The model's config, the op and the kernels use this same struct.
struct NormVariant {
  NormType type = NormType::kRmsNorm;
  double eps = 1e-5;
  bool unit_offset = false;  ///< gains multiply as 1 + gamma
  bool operator==(const NormVariant&) const = default;
};

/// layernorm  y = (x - mean) * rstd * g [+ b],  mean over the row, rstd = 1/sqrt(mean((x-mean)^2) + eps)
/// rmsnorm    y = x * rstd * g [+ b],           rstd = 1/sqrt(mean(x^2) + eps)
/// g = gamma (or 1 + gamma with unit_offset), absent gamma = 1, absent beta = 0. One rounding at the store.
/// With `heads`, a row consists of `heads` groups of D = C / heads adjacent columns, each normalized separately: means
/// over D, the statistics of head h of row n at h*N + n. Gains and biases are [D], shared by all heads, or [C]. Source:
/// Ba et al. 2016 (arXiv:1607.06450) section 3, biased variance; Zhang & Sennrich 2019 (arXiv:1910.07467) eq. 4.
struct NormForward {
  ConstView x;      ///< [N, C] storage dtype, read
  ConstView gamma;  ///< [C] or [D] storage dtype, read, or absent
  ConstView beta;   ///< shape and dtype of gamma, or absent
  MutView y;        ///< [N, C] storage dtype, written; may not alias x
  MutView mean;     ///< [heads*N] accumulate dtype, written; layernorm only, absent for rmsnorm
  MutView rstd;     ///< [heads*N] accumulate dtype, written
  NormVariant variant;
  int64_t heads = 1;

  auto views() const { return std::tie(x, gamma, beta, y, mean, rstd); }
};

/// Gradients of NormForward. dgamma, dbeta are summed across rows (and heads that share them) deterministically for any
/// thread count.
struct NormBackward {
  ConstView dy;     ///< [N, C] storage dtype, read
  ConstView x;      ///< [N, C] storage dtype, read
  ConstView gamma;  ///< [C] or [D], or absent
  ConstView mean;   ///< [heads*N] accumulate dtype; absent for rmsnorm
  ConstView rstd;   ///< [heads*N] accumulate dtype
  MutView dx;       ///< [N, C] storage dtype, by dx_mode; may alias dy when kOverwrite
  MutView dgamma;   ///< size of gamma, accumulate dtype, by param_mode; or absent
  MutView dbeta;    ///< size of beta, accumulate dtype, by param_mode; or absent
  GradMode dx_mode = GradMode::kOverwrite;
  GradMode param_mode = GradMode::kAccumulate;
  NormVariant variant;  ///< eps is not used: rstd includes it
  int64_t heads = 1;

  auto views() const { return std::tie(dy, x, gamma, mean, rstd, dx, dgamma, dbeta); }
};

// The norm in five parts, for a normalized width that is sharded over tensor ranks. Between the parts the caller adds
// the row sums of all ranks. C_total is the whole width.

/// sum[n] = sum_c x, sum_squares[n] = sum_c (x - shift)^2 with shift = center[n] if given, else 0.
/// layernorm calls it twice (sums, then centred squares), rmsnorm once.
struct NormRowStats {
  ConstView x;          ///< [N, C] storage dtype
  ConstView center;     ///< [N] accumulate dtype, or absent
  MutView sum;          ///< [N] accumulate dtype, written, or absent
  MutView sum_squares;  ///< [N] accumulate dtype, written, or absent

  auto views() const { return std::tie(x, center, sum, sum_squares); }
};

/// mean = sum / c_total, rstd = 1/sqrt(sum_squares / c_total + eps), from the sums over all ranks.
struct NormStatistics {
  ConstView sum;          ///< [N] accumulate dtype, or absent
  ConstView sum_squares;  ///< [N] accumulate dtype, or absent
  MutView mean;           ///< [N] accumulate dtype, written where sum is given; may be sum
  MutView rstd;           ///< [N] accumulate dtype, written where sum_squares is given; may be sum_squares
  int64_t c_total = 0;
  double eps = 0;

  auto views() const { return std::tie(sum, sum_squares, mean, rstd); }
};

/// y = (x - mean) * rstd * g + b with given statistics.
struct NormApply {
  ConstView x, gamma, beta;  ///< as in NormForward
  ConstView mean, rstd;      ///< [N] accumulate dtype; mean absent for rmsnorm
  MutView y;                 ///< [N, C] storage dtype, written
  bool unit_offset = false;

  auto views() const { return std::tie(x, gamma, beta, mean, rstd, y); }
};

/// With xhat = (x - mean) * rstd and h = dy * g: sum_h[n] = sum_c h (layernorm), sum_hx[n] = sum_c h * xhat.
struct NormBackwardRowSums {
  ConstView dy, x, gamma, mean, rstd;
  MutView sum_h;   ///< [N] accumulate dtype, written; absent for rmsnorm
  MutView sum_hx;  ///< [N] accumulate dtype, written
  bool unit_offset = false;

  auto views() const { return std::tie(dy, x, gamma, mean, rstd, sum_h, sum_hx); }
};

/// dx (+)= rstd * (h - sum_h / C_total - xhat * sum_hx / C_total); dgamma (+)= sum_n dy xhat; dbeta (+)= sum_n dy.
struct NormBackwardApply {
  ConstView dy, x, gamma, mean, rstd;
  ConstView sum_h;   ///< [N] accumulate dtype; absent for rmsnorm
  ConstView sum_hx;  ///< [N] accumulate dtype
  int64_t c_total = 0;
  MutView dx, dgamma, dbeta;
  GradMode dx_mode = GradMode::kOverwrite;
  GradMode param_mode = GradMode::kAccumulate;
  bool unit_offset = false;

  auto views() const { return std::tie(dy, x, gamma, mean, rstd, sum_h, sum_hx, dx, dgamma, dbeta); }
};

}  // namespace ashlar
