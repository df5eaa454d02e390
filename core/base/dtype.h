#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/bf16.h"
#include "core/base/enum_names.h"

namespace ashlar {

enum class DType : uint8_t { kFloat32, kBFloat16, kFloat64, kInt32, kInt64, kUInt8 };
inline constexpr EnumName<DType> kDTypeNames[] = {{DType::kFloat32, "fp32"}, {DType::kBFloat16, "bf16"},
                                                  {DType::kFloat64, "fp64"}, {DType::kInt32, "int32"},
                                                  {DType::kInt64, "int64"},  {DType::kUInt8, "uint8"}};
constexpr std::span<const EnumName<DType>> names_of(DType) { return kDTypeNames; }

int64_t size_of(DType dtype);  ///< bytes of one element
bool is_floating(DType dtype);

/// The type in which sums, statistics, main gradients and moments of a storage dtype are kept:
/// fp64 for fp64, fp32 for everything else.
DType accumulate_dtype(DType storage);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};

}  // namespace ashlar
