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
  ASHLAR_CHECK(xielu || !a.scalars, where, ": only xielu has scalars");
  if (xielu) check_vector(where, "scalars", a.scalars, 2, a.x.dtype);
  if (a.up) check_view(where, "up", a.up, a.x.rows, a.x.cols, a.x.dtype);
}

}  // namespace

void check(std::string_view where, const LinearForward& a) {
  const DType storage = a.x.dtype;
  check_storage(where, storage);
  check_view(where, "x", a.x, a.y.rows, a.w.cols, storage);
  check_view(where, "w", a.w, a.y.cols, a.w.cols, storage);
  check_bias(where, "bias", a.bias, a.y.cols, storage);
  ASHLAR_CHECK(a.y.dtype == storage || a.y.dtype == accumulate_dtype(storage), where, ": y holds ", name_of(a.y.dtype),
               ", x ", name_of(storage));
  check_self(where, "y", a.y);
}

void check(std::string_view where, const LinearBackwardInput& a) {
  const DType storage = a.dy.dtype;
  check_storage(where, storage);
  check_view(where, "dy", a.dy, a.dx.rows, a.w.rows, storage);
  check_view(where, "w", a.w, a.w.rows, a.dx.cols, storage);
  ASHLAR_CHECK(a.dx.dtype == storage || a.dx.dtype == accumulate_dtype(storage), where, ": dx holds ",
               name_of(a.dx.dtype), ", dy ", name_of(storage));
  check_self(where, "dx", a.dx);
}

void check(std::string_view where, const LinearBackwardWeight& a) {
  const DType storage = a.dy.dtype;
  check_storage(where, "dy", a.dy);
  if (a.dw) {
    check_view(where, "x", a.x, a.dy.rows, a.dw.cols, storage);
    check_view(where, "dw", a.dw, a.dy.cols, a.dw.cols, accumulate_dtype(storage));
  }
  if (a.dbias) check_vector(where, "dbias", a.dbias, a.dy.cols, accumulate_dtype(storage));
}

void check(std::string_view where, const ActivationForward& a) {
  check_activation(where, a);
  check_view(where, "y", a.y, a.x.rows, a.x.cols, a.x.dtype);
}

void check(std::string_view where, const ActivationBackward& a) {
  check_activation(where, a);
  check_view(where, "dy", a.dy, a.x.rows, a.x.cols, a.x.dtype);
  check_view(where, "dx", a.dx, a.x.rows, a.x.cols, a.x.dtype);
  if (a.up) check_view(where, "dup", a.dup, a.x.rows, a.x.cols, a.x.dtype);
  ASHLAR_CHECK(a.scalars || !a.dscalars, where, ": dscalars without scalars");
  if (a.dscalars) check_vector(where, "dscalars", a.dscalars, 2, accumulate_dtype(a.x.dtype));
}

void check(std::string_view where, const LinearActivation& a) {
  check("linear_forward", a.linear);
  check_view(where, "linear.y", a.linear.y, a.linear.y.rows, a.linear.y.cols, a.linear.x.dtype);
  ASHLAR_CHECK(a.kind != Activation::kXielu, where, ": xielu has scalars, which this call does not support");
  check("activation_forward", ActivationForward{.x = a.linear.y, .up = {}, .y = a.y, .kind = a.kind});
}

}  // namespace ashlar
