#include "core/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ashlar {
namespace {

// Known answers that the authors of the function publish for philox4x32 with ten rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox::apply({0, 0, 0, 0}, {0, 0}), (Philox::Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox::apply({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Philox::Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::apply({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox::Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformStaysBelowOne) {
  EXPECT_EQ(Philox::uniform(0), 0.0F);
  EXPECT_LT(Philox::uniform(0xffffffff), 1.0F);
}

TEST(Philox, NormalHasItsMoments) {
  constexpr int kCount = 200000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = Philox::normal_at(7, hash64("blocks.0.attn.q.weight"), i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Five standard errors of each.
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourth / kCount, 3, 5 * std::sqrt(96.0 / kCount));
}

TEST(Philox, SitesDiffer) {
  EXPECT_NE(hash64("a"), hash64("b"));
  EXPECT_NE(Philox::normal_at(1, hash64("a"), 0), Philox::normal_at(1, hash64("b"), 0));
  EXPECT_NE(Philox::normal_at(1, hash64("a"), 0), Philox::normal_at(2, hash64("a"), 0));
}

}  // namespace
}  // namespace ashlar
