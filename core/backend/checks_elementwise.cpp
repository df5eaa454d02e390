#include "core/backend/checks.h"

namespace ashlar {

void check(std::string_view where, const ResidualForward& a) {
  check_dropout(where, a.dropout);
  check_storage(where, "delta", a.delta);
  check_view(where, "y", a.y, a.delta.rows, a.delta.cols, a.delta.dtype);
  if (a.x) check_view(where, "x", a.x, a.delta.rows, a.delta.cols, a.delta.dtype);
  if (!a.delta2) return;
  check_dropout(where, a.dropout2);
  check_view(where, "delta2", a.delta2, a.delta.rows, a.delta.cols, a.delta.dtype);
}

void check(std::string_view where, const ResidualNormForward& a) {
  check("residual_forward", a.residual);
  check("norm_forward", a.norm);
  ASHLAR_CHECK(a.norm.heads == 1, where, ": heads = ", a.norm.heads, ", the norm is of whole rows");
  const ConstView made = a.residual.y, read = a.norm.x;
  ASHLAR_CHECK(made.data == read.data && made.stride == read.stride && made.rows == read.rows, where,
               ": expected the norm to read the residual's output");
}

void check(std::string_view where, const DropoutBackward& a) {
  check_dropout(where, a.dropout);
  check_storage(where, "dy", a.dy);
  check_view(where, "ddelta", a.ddelta, a.dy.rows, a.dy.cols, a.dy.dtype);
}

void check(std::string_view where, const LearnedScale& a) {
  check_storage(where, "x", a.x);
  check_vector(where, "s", a.s, 1, a.x.dtype);
  check_view(where, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
}

void check(std::string_view where, const LearnedScaleBackward& a) {
  check_storage(where, "x", a.x);
  check_vector(where, "s", a.s, 1, a.x.dtype);
  check_view(where, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  if (a.dx_mode != GradMode::kSkip) check_view(where, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  if (a.param_mode != GradMode::kSkip) check_vector(where, "ds", a.ds, 1, accumulate_dtype(a.x.dtype));
}

void check(std::string_view where, const Clamp& a) {
  check_storage(where, "x", a.x);
  check_view(where, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.limit > 0, where, ": limit = ", a.limit, ", expected more than 0");
}

void check(std::string_view where, const ClampBackward& a) {
  check_storage(where, "x", a.x);
  check_view(where, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  check_view(where, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.limit > 0, where, ": limit = ", a.limit, ", expected more than 0");
}

void check(std::string_view where, const Copy& a) {
  check_self(where, "src", a.src);
  check_view(where, "dst", a.dst, a.src.rows, a.src.cols, a.dst.dtype);
  if (a.src.dtype == a.dst.dtype && a.mode == GradMode::kOverwrite) return;  // a plain copy supports any dtype
  check_storage(where, a.src.dtype);
  check_storage(where, a.dst.dtype);
}

void check(std::string_view where, const Fill& a) {
  check_self(where, "dst", a.dst);
  if (is_floating(a.dst.dtype)) return;
  const double highest = a.dst.dtype == DType::kUInt8 ? 0xff : 0x7fffffff,
               lowest = a.dst.dtype == DType::kUInt8 ? 0 : -0x7fffffff;
  ASHLAR_CHECK(std::trunc(a.value) == a.value && a.value >= lowest && a.value <= highest, "fill value ", a.value,
               " is not an integer of the view's dtype");
}

void check(std::string_view where, const RandomFill& a) {
  check_storage(where, "dst", a.dst);
  ASHLAR_CHECK(a.trunc_sigma == 0 || a.trunc_sigma >= RandomFill::kLeastTruncSigma, where,
               ": trunc_sigma = ", a.trunc_sigma, ", expected 0 or at least ", RandomFill::kLeastTruncSigma);
  ASHLAR_CHECK(a.col_begin + a.dst.cols <= a.global_cols, where, ": col_begin = ", a.col_begin, " cols = ", a.dst.cols,
               " global_cols = ", a.global_cols);
}

void check(std::string_view where, const SetStruct& a) { check_vector(where, "dst", a.dst, a.size, DType::kUInt8); }

}  // namespace ashlar
