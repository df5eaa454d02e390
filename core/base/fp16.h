#pragma once

#include <bit>
#include <cstdint>

namespace ashlar {

/// IEEE binary16, used only as an element type of files; nothing is computed in it. Conversion from fp32 rounds to
/// nearest even; overflow becomes infinity, and NaN stays NaN.
struct FP16 {
  uint16_t bits = 0;

  FP16() = default;
  explicit FP16(float value) : bits(round_bits(value)) {}
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fU;
    const uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in fp32
      const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
    }
    const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + (127 - 15);
    return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
  }

  static uint16_t round_bits(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
    const uint32_t magnitude = u & 0x7fffffffU;
    if (magnitude > 0x7f800000U) {  // NaN: keeps the upper bits of the payload; if they are 0, sets another bit, so
                                    // that it stays a NaN
      const uint32_t payload = (magnitude >> 13) & 0x3ffU;
      return static_cast<uint16_t>(sign | 0x7c00U | (payload != 0 ? payload : 0x200U));
    }
    const int exponent = static_cast<int>(magnitude >> 23) - 127 + 15;
    if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00U);
    if (exponent < -10) return sign;  // rounds to zero: below half of the smallest subnormal
    // The lowest `shift` bits of the mantissa are rounded off. A subnormal loses one more bit for each exponent below
    // the smallest normal exponent.
    const uint32_t mantissa = exponent > 0 ? (magnitude & 0x7fffffU) : ((magnitude & 0x7fffffU) | 0x800000U);
    const int shift = exponent > 0 ? 13 : 14 - exponent;
    uint32_t half = (exponent > 0 ? static_cast<uint32_t>(exponent) << 10 : 0U) + (mantissa >> shift);
    const uint32_t rest = mantissa & ((1U << shift) - 1U);
    const uint32_t middle = 1U << (shift - 1);
    if (rest > middle || (rest == middle && (half & 1U) != 0)) ++half;  // the carry may increase the exponent
    return static_cast<uint16_t>(sign | half);
  }
};
static_assert(sizeof(FP16) == 2);

}  // namespace ashlar
