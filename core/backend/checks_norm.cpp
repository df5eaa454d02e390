#include "core/backend/checks.h"

namespace ashlar {

// NormCheck has the checks that several norm calls share. x must be [N, C]. Gains and biases must have one element per
// column of a row, or per column of a head, in the storage dtype. Statistics must have one element per row, or per head
// of each row, in the accumulate dtype.

namespace {

class NormCheck {
 public:
  NormCheck(std::string_view where, const ConstView& x, int64_t heads = 1) : where_(where), x_(x), heads_(heads) {
    check_storage(where, x.dtype);
    matrix("x", x);
    ASHLAR_CHECK(heads > 0 && x.cols % heads == 0, where, ": heads = ", heads, ", x has ", x.cols, " columns");
  }

  void matrix(std::string_view name, const ConstView& v) const {
    check_view(where_, name, v, x_.rows, x_.cols, x_.dtype);
  }
  void parameter(std::string_view name, const ConstView& v) const {
    if (v) check_vector(where_, name, v, gains_of(v), x_.dtype);
  }
  void parameter_grad(std::string_view name, const ConstView& v) const {
    if (v) check_vector(where_, name, v, gains_of(v), accumulate_dtype(x_.dtype));
  }
  /// Checks that both vectors have one element per column of a row, or that both have one per column of a head.
  void alike(const ConstView& a, const ConstView& b) const {
    if (a && b) ASHLAR_CHECK(a.size() == b.size(), where_, ": gains and biases of ", a.size(), " and ", b.size());
  }
  void statistic(std::string_view name, const ConstView& v) const {
    check_vector(where_, name, v, heads_ * x_.rows, accumulate_dtype(x_.dtype));
  }
  void statistic_if_given(std::string_view name, const ConstView& v) const {
    if (v) statistic(name, v);
  }

 private:
  int64_t gains_of(const ConstView& v) const { return v.size() == x_.cols / heads_ ? v.size() : x_.cols; }

  std::string_view where_;
  const ConstView& x_;
  int64_t heads_;
};

}  // namespace

void check(std::string_view where, const NormForward& a) {
  const NormCheck of(where, a.x, a.heads);
  of.matrix("y", a.y);
  of.parameter("gamma", a.gamma);
  of.parameter("beta", a.beta);
  of.alike(a.gamma, a.beta);
  if (a.variant.type == NormType::kLayerNorm) of.statistic("mean", a.mean);
  of.statistic("rstd", a.rstd);
}

void check(std::string_view where, const NormBackward& a) {
  const NormCheck of(where, a.x, a.heads);
  of.matrix("dy", a.dy);
  if (a.dx_mode != GradMode::kSkip) of.matrix("dx", a.dx);
  of.parameter("gamma", a.gamma);
  if (a.variant.type == NormType::kLayerNorm) of.statistic("mean", a.mean);
  of.statistic("rstd", a.rstd);
  of.parameter_grad("dgamma", a.dgamma);
  of.parameter_grad("dbeta", a.dbeta);
  of.alike(a.gamma, a.dgamma);
  of.alike(a.dgamma, a.dbeta);
}

void check(std::string_view where, const NormRowStats& a) {
  const NormCheck of(where, a.x);
  of.statistic_if_given("center", a.center);
  of.statistic_if_given("sum", a.sum);
  of.statistic_if_given("sum_squares", a.sum_squares);
}

void check(std::string_view where, const NormStatistics& a) {
  ASHLAR_CHECK(bool{a.sum} == bool{a.mean} && bool{a.sum_squares} == bool{a.rstd}, where,
               ": expected a sum and its statistic both, or neither");
  ASHLAR_CHECK(a.c_total > 0, where, ": c_total = ", a.c_total);
  const ConstView& first = a.sum ? a.sum : a.sum_squares;
  ASHLAR_CHECK(!first || first.dtype == accumulate_dtype(first.dtype), where, ": sums hold ", name_of(first.dtype));
  for (const auto& [name, view] : {std::pair<std::string_view, ConstView>{"sum", a.sum},
                                   {"mean", a.mean},
                                   {"sum_squares", a.sum_squares},
                                   {"rstd", a.rstd}}) {
    if (view) check_vector(where, name, view, first.size(), first.dtype);
  }
}

void check(std::string_view where, const NormApply& a) {
  const NormCheck of(where, a.x);
  of.matrix("y", a.y);
  of.parameter("gamma", a.gamma);
  of.parameter("beta", a.beta);
  of.statistic_if_given("mean", a.mean);
  of.statistic("rstd", a.rstd);
}

void check(std::string_view where, const NormBackwardRowSums& a) {
  const NormCheck of(where, a.x);
  of.matrix("dy", a.dy);
  of.parameter("gamma", a.gamma);
  of.statistic_if_given("mean", a.mean);
  of.statistic("rstd", a.rstd);
  of.statistic_if_given("sum_h", a.sum_h);
  of.statistic("sum_hx", a.sum_hx);
}

void check(std::string_view where, const NormBackwardApply& a) {
  const NormCheck of(where, a.x);
  of.matrix("dy", a.dy);
  if (a.dx_mode != GradMode::kSkip) of.matrix("dx", a.dx);
  of.parameter("gamma", a.gamma);
  of.statistic_if_given("mean", a.mean);
  of.statistic("rstd", a.rstd);
  of.statistic_if_given("sum_h", a.sum_h);
  of.statistic("sum_hx", a.sum_hx);
  of.parameter_grad("dgamma", a.dgamma);
  of.parameter_grad("dbeta", a.dbeta);
  ASHLAR_CHECK(a.c_total >= a.x.cols, where, ": c_total = ", a.c_total, " below cols = ", a.x.cols);
}

void check(std::string_view where, const NormalizeRows& a) {
  check_storage(where, "w", a.w);
  check_view(where, "y", a.y, a.w.rows, a.w.cols, a.w.dtype);
  check_vector(where, "inverse", a.inverse, a.w.rows, accumulate_dtype(a.w.dtype));
}

void check(std::string_view where, const NormalizeRowsBackward& a) {
  check_storage(where, "w", a.w);
  const DType dtype = accumulate_dtype(a.w.dtype);
  check_view(where, "dy", a.dy, a.w.rows, a.w.cols, dtype);
  check_view(where, "dw", a.dw, a.w.rows, a.w.cols, dtype);
  check_vector(where, "inverse", a.inverse, a.w.rows, dtype);
  ASHLAR_CHECK(a.dw.data != a.dy.data || a.w.size() == 0, where, ": dw must not alias dy");
}

}  // namespace ashlar
