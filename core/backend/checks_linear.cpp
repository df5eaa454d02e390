#include "core/backend/checks.h"

namespace ashlar {

namespace {

void check_bias(std::string_view where, std::string_view name, const ConstView& bias, int64_t n, DType storage) {
  if (!bias) return;
  ASHLAR_CHECK(bias.dtype == storage || bias.dtype == accumulate_dtype(storage), where, ": ", name, " holds ",
               name_of(bias.dtype), ", expected ", name_of(storage), " or ", name_of(accumulate_dtype(storage)));
  check_vector(where, name, bias, n, bias.dtype);
}

template <typename Args>
void check_activation(std::string_view where, const Args& a) {
  ASHLAR_CHECK(a.clamp >= 0, where, ": clamp = ", a.clamp);
  ASHLAR_CHECK(a.up || !a.limited(), where, ": clamp = ", a.clamp, ", linear_offset = ", a.linear_offset,
               " without up");
  check_storage(where, "x", a.x);
  const bool xielu = a.kind == Activation::kXielu;
  ASHLAR_CHECK(!xielu || !a.up, where, ": xielu has no up");
  ASHLAR_CHECK(xielu || !a.scalars, where, ": scalars are xielu's");
  if (xielu) check_vector(where, "scalars", a.scalars, 2, a.x.dtype);
  if (a.up) check_view(where, "up", a.up, a.x.rows, a.x.cols, a.x.dtype);
}

}  // namespace

void check(const LinearForward& a) {
  constexpr std::string_view kWhere = "linear_forward";
  const DType storage = a.x.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "x", a.x, a.y.rows, a.w.cols, storage);
  check_view(kWhere, "w", a.w, a.y.cols, a.w.cols, storage);
  check_bias(kWhere, "bias", a.bias, a.y.cols, storage);
  ASHLAR_CHECK(a.y.dtype == storage || a.y.dtype == accumulate_dtype(storage), kWhere, ": y holds ", name_of(a.y.dtype),
               ", x ", name_of(storage));
  check_self(kWhere, "y", a.y);
}

void check(const LinearBackwardInput& a) {
  constexpr std::string_view kWhere = "linear_backward_input";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, storage);
  check_view(kWhere, "dy", a.dy, a.dx.rows, a.w.rows, storage);
  check_view(kWhere, "w", a.w, a.w.rows, a.dx.cols, storage);
  ASHLAR_CHECK(a.dx.dtype == storage || a.dx.dtype == accumulate_dtype(storage), kWhere, ": dx holds ",
               name_of(a.dx.dtype), ", dy ", name_of(storage));
  check_self(kWhere, "dx", a.dx);
}

void check(const LinearBackwardWeight& a) {
  constexpr std::string_view kWhere = "linear_backward_weight";
  const DType storage = a.dy.dtype;
  check_storage(kWhere, "dy", a.dy);
  if (a.dw) {
    check_view(kWhere, "x", a.x, a.dy.rows, a.dw.cols, storage);
    check_view(kWhere, "dw", a.dw, a.dy.cols, a.dw.cols, accumulate_dtype(storage));
  }
  if (a.dbias) check_vector(kWhere, "dbias", a.dbias, a.dy.cols, accumulate_dtype(storage));
}

void check(const ActivationForward& a) {
  constexpr std::string_view kWhere = "activation_forward";
  check_activation(kWhere, a);
  check_view(kWhere, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
}

void check(const ActivationBackward& a) {
  constexpr std::string_view kWhere = "activation_backward";
  check_activation(kWhere, a);
  check_view(kWhere, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  check_view(kWhere, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  if (a.up) check_view(kWhere, "dup", a.dup, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.scalars || !a.dscalars, kWhere, ": dscalars without scalars");
  if (a.dscalars) check_vector(kWhere, "dscalars", a.dscalars, 2, accumulate_dtype(a.x.dtype));
}

void check(const LinearActivation& a) {
  constexpr std::string_view kWhere = "linear_activation";
  check(a.linear);
  check_view(kWhere, "linear.y", a.linear.y, a.linear.y.rows, a.linear.y.cols, a.linear.x.dtype);
  ASHLAR_CHECK(a.kind != Activation::kXielu, kWhere, ": xielu has scalars, which this call does not support");
  check(ActivationForward{.x = a.linear.y, .up = {}, .y = a.y, .kind = a.kind});
}

}  // namespace ashlar
