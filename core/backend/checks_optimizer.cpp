#include "core/backend/checks.h"

#include <span>

namespace ashlar {

namespace {

void check_update(std::string_view where, const Update& a, std::span<const ConstView> state) {
  check_struct<StepScalars>(a.scalars);
  check_struct<ClipState>(a.clip);
  const DType dtype = a.master.dtype;
  const int64_t flat = a.grad.size(), packed = state.empty() ? a.master.size() : state.front().size();
  ASHLAR_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat64, where, ": master holds ", name_of(dtype));
  ASHLAR_CHECK(a.segments.dtype == DType::kUInt8, where, ": segments hold ", name_of(a.segments.dtype));
  check_vector(where, "grad", a.grad, flat, dtype);
  const DType state_dtype = state.empty() ? dtype : state.front().dtype;
  ASHLAR_CHECK(state_dtype == dtype || (state_dtype == DType::kBFloat16 && dtype == DType::kFloat32), where,
               ": the state holds ", name_of(state_dtype), ", master ", name_of(dtype));
  for (size_t i = 0; i < state.size(); ++i) check_vector(where, str_cat("state ", i), state[i], packed, state_dtype);
  check_vector(where, "master", a.master, a.weights ? packed : flat, dtype);
  if (a.weights) {
    check_vector(where, "weights", a.weights, flat, a.weights.dtype);
    ASHLAR_CHECK(accumulate_dtype(a.weights.dtype) == dtype, where, ": weights hold ", name_of(a.weights.dtype),
                 ", master ", name_of(dtype));
  }
}

}  // namespace

void check(std::string_view where, const AdamW& a) { check_update(where, a.update, a.state()); }
void check(std::string_view where, const Lion& a) { check_update(where, a.update, a.state()); }

void check(std::string_view where, const SumSquares& a) {
  check_storage(where, a.x.dtype);
  check_vector(where, "x", a.x, a.x.size(), a.x.dtype);
  check_vector(where, "partials", a.partials, a.partials.size(), DType::kFloat64);
  check_vector(where, "sums", a.sums, a.sums.size(), DType::kFloat64);
}

void check(std::string_view where, const ClipGradients& a) {
  check_struct<ClipState>(a.state);
  check_vector(where, "squares", a.squares, a.squares.size(), DType::kFloat64);
  check_vector(where, "also_finite", a.also_finite, a.also_finite.size(), DType::kFloat64);
  check_vector(where, "kept", a.kept, a.squares.size(), DType::kFloat64);
  ASHLAR_CHECK(a.max_norm >= 0, where, ": max_norm is ", a.max_norm);
}

}  // namespace ashlar
