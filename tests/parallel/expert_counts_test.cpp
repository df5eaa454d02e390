// Counts of choices in a step, and what follows: the selection bias and the counts of the next step's balance.
#include "core/nn/expert_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/parallel/model_fixture.h"

namespace ashlar {
namespace {

using model::Balance;
using model::ModelConfig;
using testing::tiny_config;
using testing::TinyModel;
using Row = std::vector<double>;

constexpr int64_t kExperts = 6, kTopK = 2, kTokens = 14;

ModelConfig config_with(Balance balance, bool selection_bias, double rate = 1e-3) {
  ModelConfig c = tiny_config();
  c.n_layers = 3;
  c.moe = {.experts = kExperts,
           .top_k = kTopK,
           .d_ff = 6,
           .first_layer = 1,
           .selection_bias = selection_bias,
           .bias_rate = rate,
           .balance = balance,
           .balance_coef = 0.5};
  return c;
}

/// The counts of one micro-batch after another, of two layers with experts.
Row counts_of(TinyModel& m, int micro_batches, Recompute recompute = Recompute::kNone) {
  m.store().expert_counts().begin_step(m.ctx());
  Ctx ctx = m.ctx();
  ctx.recompute = recompute;
  for (int i = 0; i < micro_batches; ++i) m.loss_and_gradients(ctx);
  return m.host(m.store().expert_counts().values());
}

void update(TinyModel& m, bool skip = false) {
  const Tensor clip = m.ctx().make_struct(ClipState{.skip = skip ? 1 : 0});
  m.store().expert_counts().update(m.ctx(), clip.view());
}

TEST(ExpertCounts, CountEveryChoiceOfEachTokenOnce) {
  TinyModel m(config_with(Balance::kNone, false), DType::kFloat64, 2, 7);
  const Row one = counts_of(m, 1);
  ASSERT_EQ(std::ssize(one), 2 * kExperts);
  for (const int64_t layer : {0, 1}) {
    const auto begin = one.begin() + layer * kExperts;
    EXPECT_EQ(std::accumulate(begin, begin + kExperts, 0.0), kTokens * kTopK) << "masked targets count too";
    EXPECT_GT(*std::max_element(begin, begin + kExperts), *std::min_element(begin, begin + kExperts));
  }
  Row three = counts_of(m, 3);
  for (double& n : three) n /= 3;
  EXPECT_EQ(three, one);
  EXPECT_EQ(counts_of(m, 1, Recompute::kBlock), one) << "a recomputed block counts once";
  m.loss(m.ctx());
  EXPECT_EQ(m.host(m.store().expert_counts().values()), one) << "evaluation counts nothing";
}

TEST(ExpertCounts, MoveTheBiasBySignAndKeepThemselves) {
  TinyModel m(config_with(Balance::kPrevious, true, 0.25), DType::kFloat64, 2, 7);
  const Row counts = counts_of(m, 2);
  update(m, true);
  EXPECT_EQ(m.values("blocks.1.moe.router.selection_bias"), Row(kExperts, 0.0)) << "a skipped update changes nothing";
  EXPECT_EQ(m.values("blocks.2.moe.router.previous_counts"), Row(kExperts, 0.0));
  update(m);
  for (const int64_t layer : {0, 1}) {
    const std::string name = str_cat("blocks.", layer + 1, ".moe.router.");
    const Row own(counts.begin() + layer * kExperts, counts.begin() + (layer + 1) * kExperts);
    const double mean = 2.0 * kTokens * kTopK / kExperts;
    Row expected;
    for (const double n : own) expected.push_back(n < mean ? 0.25 : n > mean ? -0.25 : 0);
    EXPECT_EQ(m.values(name + "selection_bias"), expected);
    EXPECT_EQ(m.values(name + "previous_counts"), own);
  }
}

// With weights that do not change: the load of each expert over 100 steps, behind 200 steps of biases that move or not.
TEST(ExpertCounts, BiasesEvenOutTheLoad) {
  const auto worst_load = [](double rate) {
    TinyModel m(config_with(Balance::kNone, true, rate), DType::kFloat64, 4, 16);
    const Row router = m.values("blocks.1.moe.router.weight");
    Row load(2 * kExperts);
    for (int step = 0; step < 300; ++step) {
      const Row counts = counts_of(m, 1);
      for (size_t i = 0; i < load.size() && step >= 200; ++i) load[i] += counts[i] / 100;
      update(m);
    }
    EXPECT_EQ(m.values("blocks.1.moe.router.weight"), router);
    return *std::max_element(load.begin(), load.end()) * kExperts / (4.0 * 16 * kTopK);
  };
  EXPECT_GT(worst_load(0), 1.5);
  EXPECT_LT(worst_load(0.005), 1.15);
}

// The first step has no counts: no gradient and no loss of balance. Then the share of each expert in the step before
// counts, whatever this step's choices are.
TEST(ExpertCounts, OfThePreviousStepBalance) {
  TinyModel m(config_with(Balance::kPrevious, false), DType::kFloat64, 2, 7);
  TinyModel none(config_with(Balance::kNone, false), DType::kFloat64, 2, 7);
  const auto metric = [](TinyModel& model) {
    const auto& declared = model.store().sums().declared();
    const auto at = std::ranges::find(declared, "moe_balance", &nn::LayerMetric::metric) - declared.begin();
    return model.host(model.store().sums().values())[static_cast<size_t>(at)] * model.scalars().inv_tokens / 2;
  };
  const auto router_gradient = [](TinyModel& model) {
    model.store().sums().begin_step(model.ctx());
    model.loss_and_gradients(model.ctx());
    return model.gradient("blocks.1.moe.router.weight");
  };
  EXPECT_EQ(router_gradient(m), router_gradient(none));
  EXPECT_EQ(metric(m), 0);
  for (const char* layer : {"1", "2"})
    m.set(str_cat("blocks.", layer, ".moe.router.previous_counts"), Row(kExperts, 7.0));
  EXPECT_LT(testing::worst_difference(router_gradient(m), router_gradient(none)), 1e-15) << "the sum of P is constant";
  EXPECT_NEAR(metric(m), 1, 1e-12);
  m.set("blocks.1.moe.router.previous_counts", {8, 0, 0, 0, 0, 0});
  EXPECT_GT(testing::worst_difference(router_gradient(m), router_gradient(none)), 1e-4);
}

TEST(ExpertCounts, BuffersAreNoParameters) {
  const TinyModel with(config_with(Balance::kPrevious, true), DType::kBFloat16, 2, 7);
  const TinyModel without(config_with(Balance::kNone, false), DType::kBFloat16, 2, 7);
  EXPECT_EQ(with.store().flat_size(), without.store().flat_size());
  EXPECT_EQ(with.store().sharded_tensors().size(), without.store().sharded_tensors().size());
  EXPECT_EQ(with.store().buffers().size(), 4U);
  EXPECT_EQ(with.store().buffer_values().dtype(), DType::kFloat32);
  EXPECT_TRUE(without.store().buffers().empty());
}

TEST(ExpertCounts, AStoreWithoutTrainingHasTheBuffersOfTheModelAlone) {
  const TinyModel device(tiny_config(), DType::kFloat32, 2, 7);
  comm::SelfComm alone("tensor");
  nn::ParameterStore store;
  const ModelConfig config = config_with(Balance::kPrevious, true);
  const model::Stage stage(store, config, model::StageRange::whole(config), {.group = &alone});
  store.allocate(device.ctx(), false);
  EXPECT_EQ(store.buffer_tensors(nn::BufferUse::kModel).size(), 2U);
  EXPECT_TRUE(store.buffer_tensors(nn::BufferUse::kTraining).empty());
}

}  // namespace
}  // namespace ashlar
