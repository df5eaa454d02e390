#include "parallel/checkpoint/convert.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"

namespace ashlar::checkpoint {
namespace {

/// IEEE binary16 as bits.
struct Half {
  uint16_t bits;
};

float to_float(Half h) {
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000U) << 16;
  const uint32_t exponent = (h.bits >> 10) & 0x1fU;
  const uint32_t fraction = h.bits & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}
float to_float(BF16 x) { return static_cast<float>(x); }
float to_float(float x) { return x; }
float to_float(double x) { return static_cast<float>(x); }

template <typename To, typename From>
void convert_all(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t n = in.size() / sizeof(From);
  ASHLAR_CHECK(in.size() == n * sizeof(From) && out.size() == n * sizeof(To), in.size(), " bytes into ", out.size());
  for (size_t i = 0; i < n; ++i) {
    From x;
    std::memcpy(&x, in.data() + i * sizeof(From), sizeof(From));
    To y;
    if constexpr (std::is_same_v<From, double> && std::is_same_v<To, double>) {
      y = x;
    } else {
      y = static_cast<To>(to_float(x));
    }
    std::memcpy(out.data() + i * sizeof(To), &y, sizeof(To));
  }
}

template <typename To>
void convert_to(io::FileDType from, std::span<const std::byte> in, std::span<std::byte> out) {
  switch (from) {
    case io::FileDType::kF64: return convert_all<To, double>(in, out);
    case io::FileDType::kF32: return convert_all<To, float>(in, out);
    case io::FileDType::kF16: return convert_all<To, Half>(in, out);
    case io::FileDType::kBF16: return convert_all<To, BF16>(in, out);
    default: throw Bug(str_cat("[checkpoint] no conversion from ", io::name_of(from)));
  }
}

}  // namespace

bool is_convertible(io::FileDType from) {
  return from == io::FileDType::kF64 || from == io::FileDType::kF32 || from == io::FileDType::kF16 ||
         from == io::FileDType::kBF16;
}

void convert(io::FileDType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  switch (to) {
    case DType::kFloat64: return convert_to<double>(from, in, out);
    case DType::kFloat32: return convert_to<float>(from, in, out);
    case DType::kBFloat16: return convert_to<BF16>(from, in, out);
    default: throw Bug(str_cat("[checkpoint] no conversion to ", name_of(to)));
  }
}

}  // namespace ashlar::checkpoint
