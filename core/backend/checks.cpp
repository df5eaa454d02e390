#include "core/backend/checks.h"

namespace ashlar {

void check_view(std::string_view where, std::string_view name, const ConstView& v, int64_t rows, int64_t cols,
                DType dtype) {
  ASHLAR_CHECK(v.data != nullptr || rows * cols == 0, where, ": ", name, " is absent");
  ASHLAR_CHECK(v.rows == rows && v.cols == cols, where, ": ", name, " is [", v.rows, ", ", v.cols, "], expected [",
               rows, ", ", cols, "]");
  ASHLAR_CHECK(v.dtype == dtype, where, ": ", name, " holds ", name_of(v.dtype), ", expected ", name_of(dtype));
  ASHLAR_CHECK(v.rows <= 1 || v.stride >= v.cols, where, ": ", name, " has stride ", v.stride, " below cols ", v.cols);
}

void check_vector(std::string_view where, std::string_view name, const ConstView& v, int64_t n, DType dtype) {
  ASHLAR_CHECK(v.data != nullptr || n == 0, where, ": ", name, " is absent");
  ASHLAR_CHECK(v.size() == n && v.contiguous(), where, ": ", name, " is [", v.rows, ", ", v.cols,
               "], expected a contiguous vector of ", n);
  ASHLAR_CHECK(v.dtype == dtype, where, ": ", name, " holds ", name_of(v.dtype), ", expected ", name_of(dtype));
}

void check_storage(std::string_view where, DType dtype) {
  with_storage(where, dtype, [](auto) {});
}

void check_storage(std::string_view where, std::string_view name, const ConstView& v) {
  check_storage(where, v.dtype);
  check_self(where, name, v);
}

void check_self(std::string_view where, std::string_view name, const ConstView& v) {
  check_view(where, name, v, v.rows, v.cols, v.dtype);
}

void check_ids(std::string_view where, std::string_view name, const ConstView& v, int64_t n) {
  check_vector(where, name, v, n, DType::kInt32);
}

void check_dropout(std::string_view where, const DropoutArgs& a) {
  if (a.p < 0 || a.p >= 1)
    throw input_error(where, "expected a dropout probability p with 0 <= p < 1, got ", a.p,
                      "; correct dropout.embed, dropout.attn or dropout.resid");
  if (a.active()) check_struct<StepScalars>(a.scalars);
}

}  // namespace ashlar
