#pragma once

#include <bit>
#include <cstdint>

namespace ashlar {

/// bfloat16 storage: the upper half of an fp32. Arithmetic happens in fp32; each store rounds once,
/// to nearest even. NaN stays NaN (quiet).
struct BF16 {
  uint16_t bits = 0;

  BF16() = default;
  explicit BF16(float value) : bits(round_bits(value)) {}
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

  static uint16_t round_bits(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((u >> 16) | 0x40U);
    return static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
};
static_assert(sizeof(BF16) == 2);

}  // namespace ashlar
