#pragma once

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/bf16.h"
#include "tests/ptx/thread.h"

/// Shared by the files steps_*.cpp: each knows a family of instructions and gives null for others.
namespace ashlar::ptx {

using Parts = std::vector<std::string_view>;

Step integer_step(const Parts& parts, Instruction& instruction);
Step float_step(const Parts& parts, Instruction& instruction);
Step convert_step(const Parts& parts, Instruction& instruction);
Step memory_step(const Parts& parts, Instruction& instruction);
Step control_step(const Parts& parts, Instruction& instruction);
Step warp_step(const Parts& parts, Instruction& instruction);

inline bool has(const Parts& parts, std::string_view word) {
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}
inline Type last_type(const Parts& parts) { return type_of(parts.back()); }

/// The step of Family<T> for integer types; `signed_too` false: signs do not matter and s32 is u32.
template <template <typename> class Family>
Step of_integer(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16: return Family<uint16_t>::step;
    case Type::kS16: return Family<int16_t>::step;
    case Type::kB32:
    case Type::kU32: return Family<uint32_t>::step;
    case Type::kS32: return Family<int32_t>::step;
    case Type::kB64:
    case Type::kU64: return Family<uint64_t>::step;
    case Type::kS64: return Family<int64_t>::step;
    default: return nullptr;
  }
}
template <template <typename> class Family>
Step of_float(Type type) {
  switch (type) {
    case Type::kF32: return Family<float>::step;
    case Type::kF64: return Family<double>::step;
    default: return nullptr;
  }
}
template <template <typename> class Family>
Step of_any(Type type) {
  const Step step = of_integer<Family>(type);
  return step != nullptr ? step : of_float<Family>(type);
}

}  // namespace ashlar::ptx
