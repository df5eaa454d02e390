// The predictions of SPEED.md against the only steps of their kind that are published: LLM.Q's on one H100, in LLM.Q's
// own configuration. The rates of roofline.h are frozen by it. And that what is predicted fits into its card.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/evidence/expert_roofline.h"
#include "tests/evidence/roofline.h"

namespace ashlar::evidence {
namespace {

constexpr int64_t kLaunches = 29, kLaunchesOfExperts = 56;  // of a block of Qwen: speed_test.cpp counts them

double error_of(const Shape& shape, const Rates& rates) {
  return predict(shape, rates, kLaunches).tokens_per_second / shape.rival - 1;
}

TEST(BackTest, StepsOfLlmqComeOutAsMeasured) {
  const std::vector<Shape> all = rival_shapes();
  ASSERT_EQ(all.size(), 4U);
  for (const Shape& shape : all) {
    EXPECT_LE(std::abs(error_of(shape, cudnn_attention())), 0.03) << shape.name;
    const Interval range = interval(shape, cudnn_attention(), kLaunches);
    EXPECT_TRUE(range.low <= shape.rival && shape.rival <= range.high) << shape.name;
  }
}

// Each of the rates and of what is counted is needed: without it some step is off.
TEST(BackTest, HoldsEachConstant) {
  const auto largest_error = [](auto&& change) {
    double most = 0;
    for (Shape shape : rival_shapes()) {
      Rates rates = cudnn_attention();
      change(shape, rates);
      most = std::max(most, std::abs(error_of(shape, rates)));
    }
    return most;
  };
  EXPECT_GT(largest_error([](Shape&, Rates& r) { r.score_bytes = 0; }), 0.03) << "dP of the deterministic backward";
  EXPECT_GT(largest_error([](Shape&, Rates& r) { r.products *= 0.97; }), 0.03);
  EXPECT_GT(largest_error([](Shape&, Rates& r) { r.products *= 1.05; }), 0.03);
  EXPECT_GT(largest_error([](Shape&, Rates& r) { r.products_half_k = 256; }), 0.03);
  EXPECT_GT(largest_error([](Shape& s, Rates&) { s.card.copy *= 0.9; }), 0.03);
  EXPECT_GT(largest_error([](Shape& s, Rates&) { s.card.copy *= 1.2; }), 0.03);
  EXPECT_GT(largest_error([](Shape& s, Rates&) {
              s.micro_batch = 4;
              s.head_chunks = 0;
            }),
            0.03);
}

// The one published step with experts whose configuration is known and whose exchange stays in a node, as this model's.
TEST(BackTest, AStepWithExpertsComesOutAsPublished) {
  const PublishedExperts automodel = published_experts().front();
  ASSERT_EQ(automodel.gpus, 8);
  const double tokens = predict(automodel.nearest, others_kernels(), kLaunchesOfExperts, 1).tokens_per_second;
  EXPECT_NEAR(tokens / automodel.tokens_per_second, 1, 0.1);
}

TEST(BackTest, MicroBatchesAreTheLargestThatFit) {
  for (Shape shape : shapes()) {
    SCOPED_TRACE(shape.name);
    if (shape.name == "Qwen2.5 7B") {
      EXPECT_EQ(shape.micro_batch, 1);
      EXPECT_EQ(shape.card.name, h200().name);
      EXPECT_FALSE(fits(shape)) << "the page says that no card here holds it";
      continue;
    }
    EXPECT_TRUE(fits(shape)) << memory_of(shape);
    if (shape.micro_batch == 16) continue;
    shape.micro_batch *= 2;
    EXPECT_FALSE(fits(shape)) << "there is room for more: " << memory_of(shape);
  }
}

TEST(BackTest, IntervalsHoldWhatIsPredicted) {
  for (const Shape& shape : shapes()) {
    for (const Rates& rates : {own_attention(), cudnn_attention()}) {
      const double middle = predict(shape, rates, kLaunches).tokens_per_second;
      const Interval range = interval(shape, rates, kLaunches);
      EXPECT_LT(range.low, 0.97 * middle) << shape.name;
      EXPECT_GT(range.high, 1.03 * middle) << shape.name;
      EXPECT_GT(range.low, 0.85 * middle) << shape.name;
      EXPECT_LT(range.high, 1.15 * middle) << shape.name;
    }
  }
}

}  // namespace
}  // namespace ashlar::evidence
