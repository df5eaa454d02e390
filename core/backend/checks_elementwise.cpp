#include "core/backend/checks.h"

namespace ashlar {

void check(const ResidualForward& a) {
  constexpr std::string_view kWhere = "residual_forward";
  check_dropout(kWhere, a.dropout);
  check_storage(kWhere, "delta", a.delta);
  check_view(kWhere, "y", a.y, a.delta.rows, a.delta.cols, a.delta.dtype);
  if (a.x) check_view(kWhere, "x", a.x, a.delta.rows, a.delta.cols, a.delta.dtype);
  if (!a.delta2) return;
  check_dropout(kWhere, a.dropout2);
  check_view(kWhere, "delta2", a.delta2, a.delta.rows, a.delta.cols, a.delta.dtype);
}

void check(const ResidualNormForward& a) {
  check(a.residual);
  check(a.norm);
  ASHLAR_CHECK(a.norm.heads == 1, "residual_norm_forward: heads = ", a.norm.heads, ", the norm is of whole rows");
  const ConstView made = a.residual.y, read = a.norm.x;
  ASHLAR_CHECK(made.data == read.data && made.stride == read.stride && made.rows == read.rows,
               "residual_norm_forward: expected the norm to read the residual's output");
}

void check(const DropoutBackward& a) {
  constexpr std::string_view kWhere = "dropout_backward";
  check_dropout(kWhere, a.dropout);
  check_storage(kWhere, "dy", a.dy);
  check_view(kWhere, "ddelta", a.ddelta, a.dy.rows, a.dy.cols, a.dy.dtype);
}

void check(const LearnedScale& a) {
  constexpr std::string_view kWhere = "learned_scale";
  check_storage(kWhere, "x", a.x);
  check_vector(kWhere, "s", a.s, 1, a.x.dtype);
  check_view(kWhere, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
}

void check(const LearnedScaleBackward& a) {
  constexpr std::string_view kWhere = "learned_scale_backward";
  check_storage(kWhere, "x", a.x);
  check_vector(kWhere, "s", a.s, 1, a.x.dtype);
  check_view(kWhere, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  if (a.dx_mode != GradMode::kSkip) check_view(kWhere, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  if (a.param_mode != GradMode::kSkip) check_vector(kWhere, "ds", a.ds, 1, accumulate_dtype(a.x.dtype));
}

void check(const Clamp& a) {
  constexpr std::string_view kWhere = "clamp";
  check_storage(kWhere, "x", a.x);
  check_view(kWhere, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.limit > 0, kWhere, ": limit = ", a.limit, ", expected more than 0");
}

void check(const ClampBackward& a) {
  constexpr std::string_view kWhere = "clamp_backward";
  check_storage(kWhere, "x", a.x);
  check_view(kWhere, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  check_view(kWhere, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.limit > 0, kWhere, ": limit = ", a.limit, ", expected more than 0");
}

void check(const Copy& a) {
  constexpr std::string_view kWhere = "copy";
  check_self(kWhere, "src", a.src);
  check_view(kWhere, "dst", a.dst, a.src.rows, a.src.cols, a.dst.dtype);
  if (a.src.dtype == a.dst.dtype && a.mode == GradMode::kOverwrite) return;  // any dtype may be copied unchanged
  check_storage(kWhere, a.src.dtype);
  check_storage(kWhere, a.dst.dtype);
}

void check(const Fill& a) {
  check_self("fill", "dst", a.dst);
  if (is_floating(a.dst.dtype)) return;
  const double highest = a.dst.dtype == DType::kUInt8 ? 0xff : 0x7fffffff,
               lowest = a.dst.dtype == DType::kUInt8 ? 0 : -0x7fffffff;
  ASHLAR_CHECK(std::trunc(a.value) == a.value && a.value >= lowest && a.value <= highest, "fill value ", a.value,
               " is not an integer of the view's dtype");
}

void check(const RandomFill& a) {
  constexpr std::string_view kWhere = "random_fill";
  check_storage(kWhere, "dst", a.dst);
  ASHLAR_CHECK(a.trunc_sigma == 0 || a.trunc_sigma >= RandomFill::kLeastTruncSigma, kWhere,
               ": trunc_sigma = ", a.trunc_sigma, ", expected 0 or at least ", RandomFill::kLeastTruncSigma);
  ASHLAR_CHECK(a.col_begin + a.dst.cols <= a.global_cols, kWhere, ": col_begin = ", a.col_begin, " cols = ", a.dst.cols,
               " global_cols = ", a.global_cols);
}

void check(const SetStruct& a) { check_vector("set_struct", "dst", a.dst, a.size, DType::kUInt8); }

}  // namespace ashlar
