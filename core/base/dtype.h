#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/base/bf16.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat64, kInt32, kInt64, kUInt8 };
constexpr auto names_of(DType) { return enum_names<DType>("fp32", "bf16", "fp64", "int32", "int64", "uint8"); }

int64_t size_of(DType dtype);  ///< size of one element in bytes
bool is_floating(DType dtype);

/// Returns the accumulate dtype for a storage dtype: fp64 for fp64, fp32 for all others. Sums, statistics, main
/// gradients and optimizer state have the accumulate dtype; weights and activations have the storage dtype.
DType accumulate_dtype(DType storage);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::kFloat32> {};
template <>
struct DTypeOf<BF16> : std::integral_constant<DType, DType::kBFloat16> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::kFloat64> {};
template <>
struct DTypeOf<int32_t> : std::integral_constant<DType, DType::kInt32> {};
template <>
struct DTypeOf<int64_t> : std::integral_constant<DType, DType::kInt64> {};
template <>
struct DTypeOf<uint8_t> : std::integral_constant<DType, DType::kUInt8> {};

/// Calls f(T()) with the C++ type T of a storage dtype. Throws an input_error if the dtype is not fp32, bf16 or fp64.
template <typename F>
void with_storage(std::string_view where, DType dtype, const F& f) {
  switch (dtype) {
    case DType::kFloat32: return f(float());
    case DType::kBFloat16: return f(BF16());
    case DType::kFloat64: return f(double());
    default:
      throw input_error(where, "expected fp32, bf16 or fp64 as storage dtype, got ", name_of(dtype),
                        "; choose one of these");
  }
}

}  // namespace ashlar
