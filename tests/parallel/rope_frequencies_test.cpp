// Which layer rotates how: frequencies against numbers computed elsewhere, and properties that tell one scaling from
// another in a whole model.
#include "parallel/model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::ModelConfig;
using model::RopeScaling;
using testing::kShortLength;
using testing::kSmallBatch;
using testing::logits_of;
using testing::tiny_config;
using testing::TinyModel;
using testing::worst_difference;

/// Frequencies of 16 dims, base 10000.
std::vector<double> frequencies(const model::RopeConfig& rope, int64_t positions = 32) {
  ModelConfig c = tiny_config();
  c.head_dim = 16;
  c.rope = rope;
  if (c.rope.dims == 0) c.rope.dims = 16;
  return model::rope_frequencies(c, model::rope_of(c, 0), positions);
}

void expect_numbers(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t m = 0; m < got.size(); ++m) EXPECT_NEAR(got[m], expected[m], 1e-14 * expected[m]) << "pair " << m;
}

TEST(RopeFrequencies, AreThoseOfTheFormulas) {
  const std::vector<double> plain = frequencies({});
  EXPECT_NEAR(plain[1], 0.31622776601683794, 1e-15);
  std::vector<double> quarter = plain;
  for (double& f : quarter) f /= 4;
  expect_numbers(frequencies({.scaling = RopeScaling::kLinear, .factor = 4}), quarter);
  model::RopeConfig yarn{.scaling = RopeScaling::kYarn, .factor = 4, .original_positions = 64};
  expect_numbers(frequencies(yarn), {1.0, 0.23717082451262847, 0.05, 0.007905694150420948, 0.0025,
                                     0.0007905694150420948, 0.00025, 7.905694150420948e-05});
  EXPECT_NEAR(model::default_attention_factor(yarn), 1.1386294361119891, 1e-15);
  yarn.truncate = false;
  expect_numbers(frequencies(yarn), {1.0, 0.19858352015369318, 0.02559524589192421, 0.007905694150420948, 0.0025,
                                     0.0007905694150420948, 0.00025, 7.905694150420948e-05});
  expect_numbers(frequencies({.scaling = RopeScaling::kLlama3, .factor = 8, .original_positions = 128}),
                 {1.0, 0.31622776601683794, 0.042751178754307596, 0.003952847075210474, 0.00125, 0.0003952847075210474,
                  0.000125, 3.952847075210474e-05});
}

// Llama 4 Scout has both factors 1: no pair lies between the two wavelengths. A pair of exactly that wavelength turns
// as before, where a blend would divide zero by zero.
TEST(RopeFrequencies, OfLlama3WithEqualFactorsAreKeptOrDivided) {
  expect_numbers(frequencies({.scaling = RopeScaling::kLlama3,
                              .factor = 8,
                              .low_freq_factor = 1,
                              .high_freq_factor = 1,
                              .original_positions = 128}),
                 {1.0, 0.31622776601683794, 0.1, 0.00395284707521047, 0.00125, 0.000395284707521047, 0.000125,
                  3.95284707521047e-05});
  const std::vector<double> exact = frequencies({.base = 1,
                                                 .scaling = RopeScaling::kLlama3,
                                                 .factor = 8,
                                                 .low_freq_factor = 4 / (2 * std::numbers::pi),
                                                 .high_freq_factor = 4 / (2 * std::numbers::pi),
                                                 .original_positions = 4});
  ASSERT_EQ(4 / (4 / (2 * std::numbers::pi)), 2 * std::numbers::pi) << "the wavelength of all pairs is the bound";
  for (const double f : exact) EXPECT_EQ(f, 1.0);
}

TEST(RopeFrequencies, OfLongropeFollowTheLongestSequence) {
  model::RopeConfig rope{.dims = 4, .scaling = RopeScaling::kLongrope, .factor = 4, .original_positions = 64};
  rope.short_factor = {1.0, 2.0};
  rope.long_factor = {4.0, 5.0};
  expect_numbers(frequencies(rope, 64), {1.0, 0.005});
  expect_numbers(frequencies(rope, 65), {0.25, 0.002});
  EXPECT_NEAR(model::default_attention_factor(rope), std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-15);
}

TEST(RopeFrequencies, OfAFractionTurnPairsOfTheFractionOrOfTheWholeHead) {
  const std::vector<double> fraction = frequencies({.dims = 8});
  ASSERT_EQ(fraction.size(), 4U);
  EXPECT_NEAR(fraction[3], 0.001, 1e-17);  // 10000^(-6/8)
  const std::vector<double> whole = frequencies({.dims = 8, .scaling = RopeScaling::kProportional});
  ASSERT_EQ(whole.size(), 8U);
  EXPECT_NEAR(whole[3], 0.03162277660168379, 1e-16);  // 10000^(-6/16)
  for (size_t m = 4; m < 8; ++m) EXPECT_EQ(whole[m], 0.0);
}

TEST(RopeProperty, LinearScalingIsTheDistanceDivided) {
  ModelConfig c = tiny_config();
  TinyModel plain(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.rope.scaling = RopeScaling::kLinear;
  c.rope.factor = 3;
  TinyModel scaled(c, DType::kFloat64, kSmallBatch, kShortLength);
  EXPECT_GT(worst_difference(plain.logits(), scaled.logits()), 1e-4);
  for (int32_t& p : scaled.positions()) p *= 3;
  EXPECT_LT(worst_difference(plain.logits(), scaled.logits()), 1e-12);
}

TEST(RopeProperty, DynamicScalingIsAnotherBase) {
  ModelConfig c = tiny_config();
  c.rope.scaling = RopeScaling::kDynamic;
  c.rope.alpha = 10;
  const std::vector<double> dynamic = logits_of(c);
  c.rope.scaling = RopeScaling::kNone;
  EXPECT_GT(worst_difference(logits_of(c), dynamic), 1e-6);
  c.rope.base *= 100;  // 10^(4/2)
  EXPECT_LT(worst_difference(logits_of(c), dynamic), 1e-12);
}

// Of two pairs, whose frequencies are 1 and base^(-1/2), a scaling that keeps the first is another base.
TEST(RopeProperty, Llama3AndYarnKeepTheFirstPair) {
  ModelConfig c = tiny_config();
  c.rope.factor = 4;
  ModelConfig other = tiny_config();
  const auto expect_second = [&](double frequency) {
    other.rope.base = 1 / (frequency * frequency);
    EXPECT_LT(worst_difference(logits_of(c), logits_of(other)), 1e-12) << name_of(c.rope.scaling) << " " << frequency;
    EXPECT_GT(worst_difference(logits_of(c), logits_of(tiny_config())), 1e-6);
  };
  c.rope.scaling = RopeScaling::kLlama3;
  c.rope.original_positions = 100;  // a wavelength of 628 is beyond it, one of 6.28 within a quarter
  expect_second(0.01 / 4);
  c.rope.original_positions = 1000;  // 628 lies between 1000 / 4 and 1000 / 1
  const double turns = 1000 / (200 * std::numbers::pi), share = (turns - 1) / (4 - 1);
  expect_second(0.01 * share + 0.01 / 4 * (1 - share));
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.original_positions = 2048;  // 32 turns at pair 0.50, one at pair 1.26: truncated 0 and 2, the second half way
  expect_second(0.01 / 2 + 0.01 / 4 / 2);
  c.rope.truncate = false;
  const auto pair = [](double n) { return 2 * std::log(2048 / (2 * std::numbers::pi * n)) / std::log(1e4); };
  const double scaled = (1 - pair(32)) / (pair(1) - pair(32));
  expect_second(0.01 * (1 - scaled) + 0.01 / 4 * scaled);
}

// Of one factor for all pairs longrope is linear scaling: the short one's to the original length, the long one's
// beyond.
TEST(RopeProperty, LongropeOfEqualFactorsIsLinear) {
  ModelConfig c = tiny_config(), linear = tiny_config();
  c.rope.scaling = RopeScaling::kLongrope;
  c.rope.factor = 4;
  c.rope.short_factor = {2, 2};
  c.rope.long_factor = {3, 3};
  linear.rope.scaling = RopeScaling::kLinear;
  for (const bool longer : {false, true}) {
    c.rope.original_positions = longer ? 63 : 64;  // tables are for 64
    linear.rope.factor = longer ? 3 : 2;
    EXPECT_LT(worst_difference(logits_of(c), logits_of(linear)), 1e-12) << linear.rope.factor;
    linear.rope.factor = longer ? 2 : 3;
    EXPECT_GT(worst_difference(logits_of(c), logits_of(linear)), 1e-6);
  }
}

TEST(RopeProperty, TheAttentionFactorMultipliesScoresTwice) {
  ModelConfig c = tiny_config();
  c.rope.scaling = RopeScaling::kYarn;
  c.rope.factor = 4;
  c.rope.original_positions = 8;
  c.rope.attention_factor = 1.5;
  const std::vector<double> with = logits_of(c);
  c.rope.attention_factor = 1;
  EXPECT_GT(worst_difference(logits_of(c), with), 1e-4);
  c.attn.scale *= 1.5 * 1.5;
  EXPECT_LT(worst_difference(logits_of(c), with), 1e-12);
}

TEST(RopeProperty, BasesFollowTheLayers) {
  ModelConfig c = tiny_config();
  const std::vector<double> plain = logits_of(c);
  c.rope.base_cycle = {1e4, 1e4};
  EXPECT_EQ(logits_of(c), plain);
  c.rope.base_cycle = {1e4, 100.0};
  const std::vector<double> second = logits_of(c);
  c.rope.base_cycle = {100.0, 1e4};
  EXPECT_GT(worst_difference(logits_of(c), second), 1e-6);
  c.rope.base_cycle = {0.0};  // no layer turns
  const std::vector<double> none = logits_of(c);
  ModelConfig without = tiny_config();
  without.pos.type = model::PosType::kNone;
  without.rope = {};
  EXPECT_EQ(logits_of(without), none);
  c.rope.base_cycle = {1e4, 0.0};
  EXPECT_GT(worst_difference(logits_of(c), none), 1e-6);
}

// Turning (a, b) back by an angle is turning (b, a) on by it.
TEST(RopeProperty, AReversedRotationIsThatOfSwappedPairs) {
  ModelConfig c = tiny_config();
  TinyModel forward(c, DType::kFloat64, kSmallBatch, kShortLength);
  c.rope.reversed = true;
  TinyModel reversed(c, DType::kFloat64, kSmallBatch, kShortLength);
  EXPECT_GT(worst_difference(forward.logits(), reversed.logits()), 1e-4);
  const int64_t half = c.rope.dims / 2;
  for (const auto& ref : forward.store().sharded_tensors()) {
    const std::string& name = ref.tensor->name;
    if (!name.ends_with(".attn.q.weight") && !name.ends_with(".attn.k.weight")) continue;
    const std::vector<double> w = forward.values(name);
    std::vector<double> swapped = w;
    for (int64_t row = 0; row < std::ssize(w) / c.d_model; ++row) {
      const int64_t d = row % c.head_dim, from = row - d + (d + half) % c.rope.dims;
      std::copy_n(w.begin() + from * c.d_model, c.d_model, swapped.begin() + row * c.d_model);
    }
    reversed.set(name, swapped);
  }
  EXPECT_LT(worst_difference(forward.logits(), reversed.logits()), 1e-12);
}

TEST(BaseCycle, IsReducedToTheShortest) {
  EXPECT_EQ(model::shortest_cycle<double>({1, 1, 0, 1, 1, 0, 1}), (std::vector<double>{1, 1, 0}));
  EXPECT_EQ(model::shortest_cycle<double>({1, 1, 1}), (std::vector<double>{1}));
  EXPECT_EQ(model::shortest_cycle<double>({1, 0, 0}), (std::vector<double>{1, 0, 0}));
}

}  // namespace
}  // namespace ashlar
