#include "core/base/fp16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ashlar {
namespace {

float value_of(uint16_t bits) {
  FP16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

TEST(Fp16, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = value_of(half);
    const uint32_t exponent = (bits >> 10) & 31U, mantissa = bits & 1023U;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(wide));
      continue;
    }
    // The value by the definition of the format.
    const double magnitude = exponent == 31  ? std::numeric_limits<double>::infinity()
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(1024.0 + mantissa, static_cast<int>(exponent) - 25);
    ASSERT_EQ(wide, static_cast<float>((bits & 0x8000U) != 0 ? -magnitude : magnitude)) << bits;
    ASSERT_EQ(FP16::round_bits(wide), half);
  }
}

TEST(Fp16, WhatIsBeyondEveryHalfIsInfinite) {
  for (const float x : {65520.0F, 65536.0F, 70000.0F, 98304.0F, 131071.0F, 131072.0F, 1e30F}) {
    EXPECT_EQ(FP16::round_bits(x), 0x7c00) << x;
    EXPECT_EQ(FP16::round_bits(-x), 0xfc00) << x;
  }
  EXPECT_EQ(FP16::round_bits(65519.0F), 0x7bff) << "rounds to the largest one";
}

TEST(Fp16, HalfRoundsToNearestEven) {
  // Between every two neighbours: below, at and above the middle.
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const uint16_t high = low + 1;
    const float a = value_of(low), b = value_of(high);
    const float middle = (a + b) / 2;  // exact in fp32
    ASSERT_EQ(FP16::round_bits(std::nextafter(middle, a)), low);
    ASSERT_EQ(FP16::round_bits(std::nextafter(middle, b)), high);
    ASSERT_EQ(FP16::round_bits(middle), (low & 1) == 0 ? low : high);
    ASSERT_EQ(FP16::round_bits(-middle), 0x8000 | ((low & 1) == 0 ? low : high));
  }
  EXPECT_EQ(FP16::round_bits(65519.996F), 0x7bff);
  EXPECT_EQ(FP16::round_bits(65520.0F), 0x7c00);
  EXPECT_EQ(FP16::round_bits(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(FP16::round_bits(0x1p-26F), 0);
}

}  // namespace
}  // namespace ashlar
