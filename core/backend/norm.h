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
  bool unit_offset = false;  ///< true: the gain is 1 + gamma instead of gamma
  bool operator==(const NormVariant&) const = default;
};

/// layernorm  y = (x - mean) * rstd * g [+ b],  mean over the row, rstd = 1/sqrt(mean((x-mean)^2) + eps)
/// rmsnorm    y = x * rstd * g [+ b],           rstd = 1/sqrt(mean(x^2) + eps)
/// g is gamma, or 1 + gamma with unit_offset, or 1 if gamma is absent. b is beta, or 0 if beta is absent. y is rounded
/// once when stored. If `heads` is more than 1, each row consists of `heads` groups (heads) of D = C / heads adjacent
/// columns, and each head is normalized separately: the means are over its D columns, and the statistics of head h of
/// row n are at index h*N + n. gamma and beta are [D], shared by all heads, or [C].
/// Source: Ba et al. 2016 (arXiv:1607.06450) section 3, biased variance; Zhang & Sennrich 2019 (arXiv:1910.07467) eq.
/// 4.
struct NormForward {
  ConstView x;      ///< [N, C] storage dtype, read
  ConstView gamma;  ///< [C] or [D] storage dtype, read, or absent
  ConstView beta;   ///< [C] or [D], shape and dtype of gamma, read, or absent
  MutView y;        ///< [N, C] storage dtype, written; must not alias x
  MutView mean;     ///< [heads*N] accumulate dtype, written; layernorm only, absent for rmsnorm
  MutView rstd;     ///< [heads*N] accumulate dtype, written
  NormVariant variant;
  int64_t heads = 1;

  auto views() const { return std::tie(x, gamma, beta, y, mean, rstd); }
};

/// Gradients of NormForward. dgamma and dbeta are summed over rows, and over the heads that share gamma and beta. The
/// sums have the same bits for any thread count.
struct NormBackward {
  ConstView dy;     ///< [N, C] storage dtype, read
  ConstView x;      ///< [N, C] storage dtype, read
  ConstView gamma;  ///< [C] or [D], or absent
  ConstView mean;   ///< [heads*N] accumulate dtype; absent for rmsnorm
  ConstView rstd;   ///< [heads*N] accumulate dtype
  MutView dx;       ///< [N, C] storage dtype, written or accumulated (dx_mode); may alias dy if kOverwrite
  MutView dgamma;   ///< size of gamma, accumulate dtype, written or accumulated (param_mode); or absent
  MutView dbeta;    ///< size of beta, accumulate dtype, written or accumulated (param_mode); or absent
  GradMode dx_mode = GradMode::kOverwrite;
  GradMode param_mode = GradMode::kAccumulate;
  NormVariant variant;  ///< type and unit_offset are used; eps is not, since rstd includes it
  int64_t heads = 1;

  auto views() const { return std::tie(dy, x, gamma, mean, rstd, dx, dgamma, dbeta); }
};

// The norm in five kernels, for rows whose columns are sharded over tensor ranks. Some kernels compute row sums
// over this rank's columns, the others read row sums over the columns of all ranks; the caller all-reduces the row sums
// in between. c_total is the number of columns of all ranks together.

/// sum[n] = sum_c x and sum_squares[n] = sum_c (x - shift)^2, where shift is center[n] if given, else 0. A layernorm
/// needs two calls, first for sum, then for sum_squares around the mean; an rmsnorm needs one, for sum_squares.
struct NormRowStats {
  ConstView x;          ///< [N, C] storage dtype
  ConstView center;     ///< [N] accumulate dtype, or absent
  MutView sum;          ///< [N] accumulate dtype, written, or absent
  MutView sum_squares;  ///< [N] accumulate dtype, written, or absent

  auto views() const { return std::tie(x, center, sum, sum_squares); }
};

/// mean = sum / c_total and rstd = 1/sqrt(sum_squares / c_total + eps). The caller has already summed sum and
/// sum_squares over all ranks.
struct NormStatistics {
  ConstView sum;          ///< [N] accumulate dtype, or absent
  ConstView sum_squares;  ///< [N] accumulate dtype, or absent
  MutView mean;           ///< [N] accumulate dtype, written if sum is given; may alias sum
  MutView rstd;           ///< [N] accumulate dtype, written if sum_squares is given; may alias sum_squares
  int64_t c_total = 0;
  double eps = 0;

  auto views() const { return std::tie(sum, sum_squares, mean, rstd); }
};

/// y = (x - mean) * rstd * g + b with the given statistics; g and b as in NormForward, mean = 0 for rmsnorm.
struct NormApply {
  ConstView x, gamma, beta;  ///< as in NormForward
  ConstView mean, rstd;      ///< [N] accumulate dtype; mean absent for rmsnorm
  MutView y;                 ///< [N, C] storage dtype, written
  bool unit_offset = false;

  auto views() const { return std::tie(x, gamma, beta, mean, rstd, y); }
};

/// Row sums for the backward of the norm: sum_h[n] = sum_c h (layernorm only) and sum_hx[n] = sum_c h * xhat, where
/// xhat = (x - mean) * rstd and h = dy * g.
struct NormBackwardRowSums {
  ConstView dy, x, gamma, mean, rstd;
  MutView sum_h;   ///< [N] accumulate dtype, written; absent for rmsnorm
  MutView sum_hx;  ///< [N] accumulate dtype, written
  bool unit_offset = false;

  auto views() const { return std::tie(dy, x, gamma, mean, rstd, sum_h, sum_hx); }
};

/// Gradients of the norm: dx (+)= rstd * (h - sum_h / c_total - xhat * sum_hx / c_total); dgamma (+)= sum_n dy * xhat;
/// dbeta (+)= sum_n dy. h, xhat, sum_h and sum_hx are defined at NormBackwardRowSums; the caller has already summed
/// sum_h and sum_hx over all ranks.
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
