#include "core/backend/checks.h"

namespace ashlar {

void check(const ShareHead& a) {
  constexpr std::string_view kWhere = "share_head";
  const DType storage = a.y.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "y", a.y, a.y.rows, a.y.cols, storage);
  ASHLAR_CHECK(a.heads > 0, kWhere, ": heads = ", a.heads);
  check_view(kWhere, "shared", a.shared, a.y.rows, a.shared.cols, storage);
  check_view(kWhere, "own", a.own, a.y.rows, a.y.cols - a.heads * a.shared.cols, storage);
  ASHLAR_CHECK(a.own.cols % a.heads == 0, kWhere, ": own has ", a.own.cols, " columns for ", a.heads, " heads");
}

void check(const ShareHeadBackward& a) {
  constexpr std::string_view kWhere = "share_head_backward";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "dy", a.dy, a.dy.rows, a.dy.cols, storage);
  ASHLAR_CHECK(a.heads > 0, kWhere, ": heads = ", a.heads);
  check_view(kWhere, "dshared", a.dshared, a.dy.rows, a.dshared.cols, storage);
  check_view(kWhere, "down", a.down, a.dy.rows, a.dy.cols - a.heads * a.dshared.cols, storage);
  ASHLAR_CHECK(a.down.cols % a.heads == 0, kWhere, ": down has ", a.down.cols, " columns for ", a.heads, " heads");
}

void check(const LearnedScale& a) {
  constexpr std::string_view kWhere = "learned_scale";
  check_storage(kWhere, a.x.dtype);
  check_view(kWhere, "x", a.x, a.x.rows, a.x.cols, a.x.dtype);
  check_vector(kWhere, "s", a.s, 1, a.x.dtype);
  check_view(kWhere, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
}

void check(const LearnedScaleBackward& a) {
  constexpr std::string_view kWhere = "learned_scale_backward";
  check_storage(kWhere, a.x.dtype);
  check_view(kWhere, "x", a.x, a.x.rows, a.x.cols, a.x.dtype);
  check_vector(kWhere, "s", a.s, 1, a.x.dtype);
  check_view(kWhere, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  if (a.dx_mode != GradMode::kSkip) check_view(kWhere, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  if (a.param_mode != GradMode::kSkip) check_vector(kWhere, "ds", a.ds, 1, accumulate_dtype(a.x.dtype));
}

void check(const Clamp& a) {
  constexpr std::string_view kWhere = "clamp";
  check_storage(kWhere, a.x.dtype);
  check_view(kWhere, "x", a.x, a.x.rows, a.x.cols, a.x.dtype);
  check_view(kWhere, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.limit > 0, kWhere, ": limit = ", a.limit, ", expected more than 0");
}

void check(const ClampBackward& a) {
  constexpr std::string_view kWhere = "clamp_backward";
  check_storage(kWhere, a.x.dtype);
  check_view(kWhere, "x", a.x, a.x.rows, a.x.cols, a.x.dtype);
  check_view(kWhere, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  check_view(kWhere, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.limit > 0, kWhere, ": limit = ", a.limit, ", expected more than 0");
}

}  // namespace ashlar
