// Options of a router that are easily taken for one another: where two of them must agree, and where they must not.
#include <gtest/gtest.h>

#include <functional>

#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::MoeConfig;
using testing::TinyModel;
using testing::worst_difference;

constexpr double kSameLogits = 1e-12, kOtherLogits = 1e-4;
constexpr MoeConfig kSigmoidRouter{.experts = 6, .top_k = 2, .d_ff = 6, .rule = {.score = RouterScore::kSigmoid}};

model::ModelConfig router_config(const MoeConfig& moe) {
  model::ModelConfig c = testing::tiny_config();
  c.moe = moe;
  return c;
}

/// Of tensors and tokens that all these models share.
std::vector<double> router_logits_of(const MoeConfig& moe) { return testing::logits_of(router_config(moe)); }

MoeConfig router_with(MoeConfig moe, const std::function<void(MoeConfig&)>& change) {
  change(moe);
  return moe;
}

// The shares of all experts, or of the chosen ones alone.
TEST(RouterProperties, SoftmaxBeforeAndAfterTheChoiceAgreeOnAllExperts) {
  for (const int64_t top_k : {2, 4}) {
    const MoeConfig after{.experts = 4, .top_k = top_k, .d_ff = 6};
    const MoeConfig before = router_with(after, [](MoeConfig& m) { m.rule.renormalize = false; });
    const double difference = worst_difference(router_logits_of(after), router_logits_of(before));
    if (top_k == 4) {
      EXPECT_LT(difference, kSameLogits);
    } else {
      EXPECT_GT(difference, kOtherLogits);
    }
  }
}

TEST(RouterProperties, SigmoidsAreNoSoftmax) {
  const MoeConfig softmax = router_with(kSigmoidRouter, [](MoeConfig& m) { m.rule.score = RouterScore::kSoftmax; });
  EXPECT_GT(worst_difference(router_logits_of(kSigmoidRouter), router_logits_of(softmax)), kOtherLogits);
}

TEST(RouterProperties, TheScaleMultipliesWhatExpertsGive) {
  TinyModel scaled(router_config(router_with(kSigmoidRouter, [](MoeConfig& m) { m.rule.scale = 2.5; })),
                   DType::kFloat64, 2, 7);
  TinyModel larger(router_config(kSigmoidRouter), DType::kFloat64, 2, 7);
  EXPECT_GT(worst_difference(scaled.logits(), larger.logits()), kOtherLogits);
  for (const char* layer : {"0", "1"})
    for (int64_t e = 0; e < kSigmoidRouter.experts; ++e)
      testing::scale(larger, str_cat("blocks.", layer, ".moe.experts.", e, ".down.weight"), 2.5);
  EXPECT_LT(worst_difference(scaled.logits(), larger.logits()), kSameLogits);
}

// Two sigmoids sum to less than 5: there the floor is the divisor. An eps is added to any sum.
TEST(RouterProperties, AFloorIsADivisorAndAnEpsASummand) {
  const auto renormalized = [](double floor, double eps) {
    return router_logits_of(router_with(kSigmoidRouter, [&](MoeConfig& m) {
      m.rule.renormalize = true;
      m.rule.sum_floor = floor;
      m.rule.sum_eps = eps;
    }));
  };
  const std::vector<double> fifth = router_logits_of(router_with(kSigmoidRouter, [](MoeConfig& m) {
    m.rule.renormalize = false;
    m.rule.scale = 0.2;
  }));
  EXPECT_LT(worst_difference(renormalized(5, 0), fifth), kSameLogits);
  EXPECT_LT(worst_difference(renormalized(4, 1), fifth), kSameLogits) << "the eps is added to the floor";
  EXPECT_GT(worst_difference(renormalized(0, 5), fifth), kOtherLogits);
  EXPECT_LT(worst_difference(renormalized(1e-6, 0), renormalized(0, 0)), kSameLogits);
  EXPECT_GT(worst_difference(renormalized(0, 0.1), renormalized(0, 0)), kOtherLogits);
}

TEST(RouterProperties, GroupsAreScoredByTheirBestOrTheirTwoBest) {
  const auto grouped = [](GroupScore score, int64_t top_groups) {
    return router_logits_of(router_with(kSigmoidRouter, [&](MoeConfig& m) {
      m.rule.groups = 3;
      m.rule.top_groups = top_groups;
      m.rule.group_score = score;
    }));
  };
  const std::vector<double> free = router_logits_of(kSigmoidRouter);
  for (const GroupScore score : {GroupScore::kMax, GroupScore::kTopTwo}) {
    EXPECT_LT(worst_difference(grouped(score, 3), free), kSameLogits) << "all groups take part";
    EXPECT_GT(worst_difference(grouped(score, 1), free), kOtherLogits);
  }
  EXPECT_GT(worst_difference(grouped(GroupScore::kMax, 1), grouped(GroupScore::kTopTwo, 1)), kOtherLogits);
}

// What a linear network makes of w x is w times what it makes of x.
TEST(RouterProperties, ScaledInputsAreScaledOutputsOfLinearExpertsAlone) {
  for (const Activation act : {Activation::kIdentity, Activation::kSilu}) {
    model::ModelConfig outputs = router_config(kSigmoidRouter);
    outputs.ffn = {.act = act, .gated = false};
    model::ModelConfig inputs = outputs;
    inputs.moe.scale_input = true;
    const double difference = worst_difference(testing::logits_of(inputs), testing::logits_of(outputs));
    if (act == Activation::kIdentity) {
      EXPECT_LT(difference, kSameLogits);
    } else {
      EXPECT_GT(difference, kOtherLogits);
    }
  }
}

}  // namespace
}  // namespace ashlar
