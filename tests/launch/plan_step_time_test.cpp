#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "launch/plan/communication.h"
#include "launch/plan/fit.h"
#include "launch/plan/rank_work.h"
#include "parallel/model/flops.h"
#include "parallel/model/parameter_count.h"
#include "tests/launch/published_steps.h"
#include "tests/support/thrown.h"

namespace ashlar::plan {
namespace {

using ::testing::HasSubstr;

/// nanotron's model of 3.57B on this mesh, 256 samples a step.
config::RunConfig run_of(int64_t tensor, int64_t pipeline, int64_t data, int64_t micro_batch = 2) {
  ashlar::testing::PublishedStep step = ashlar::testing::nanotron_steps()[1];
  step.tensor = tensor;
  step.pipeline = pipeline;
  step.data = data;
  step.micro_batch = micro_batch;
  return config_of(step);
}

config::RunConfig experts_of(int64_t data, int64_t expert) {
  config::RunConfig run = run_of(1, 1, data);
  run.model.moe.experts = 8;
  run.model.moe.d_ff = 2048;
  run.mesh.expert = expert;
  return run;
}

double seconds_of(const StepTime& step, const std::string& what) {
  double seconds = 0;
  for (const TimeLine& line : step.lines)
    if (line.what.find(what) != std::string::npos) seconds += line.seconds + line.hidden;
  return seconds;
}

double flops_of(const StepTime& step) {
  return std::accumulate(step.lines.begin(), step.lines.end(), 0.0,
                         [](double sum, const TimeLine& line) { return sum + line.flops; });
}

const Device& h100() {
  static const Device kDevice = device_named("h100-sxm");
  return kDevice;
}

TEST(PlanStepTime, TheLinesAddUpToTheStepWithinItsInterval) {
  for (const auto& run : {run_of(1, 1, 1), run_of(2, 2, 2), run_of(8, 1, 4), experts_of(8, 4)}) {
    const StepTime step = step_time(run, h100());
    double sum = 0;
    for (const TimeLine& line : step.lines) {
      EXPECT_GE(line.seconds, 0) << line.what;
      sum += line.seconds;
    }
    EXPECT_NEAR(sum, step.seconds, 1e-9 * sum);
    EXPECT_LT(step.low, step.seconds);
    EXPECT_GT(step.high, step.seconds);
    EXPECT_GT(step.share_of_peak(), 0.2);
    EXPECT_LT(step.share_of_peak(), 0.8);
  }
}

/// What the ranks of one replica and of all stages compute is what the formulas of the whole model count.
TEST(PlanStepTime, OneRankComputesTheModelsFlops) {
  for (const config::RunConfig& run : {run_of(1, 1, 1), experts_of(1, 1)}) {
    const StepTime step = step_time(run, h100());
    EXPECT_NEAR(flops_of(step) / step.model_flops, 1, 2e-3);  // a router's product is counted apart
  }
  const double whole = flops_of(step_time(run_of(1, 1, 1), h100()));
  EXPECT_NEAR(flops_of(step_time(run_of(4, 1, 1), h100())) * 4 / whole, 1, 1e-6);
  EXPECT_NEAR(flops_of(step_time(run_of(1, 1, 4), h100())) * 4 / whole, 1, 1e-6);
}

TEST(PlanStepTime, ParametersOfTheRanksAreThoseOfTheModel) {
  for (const config::RunConfig& run : {run_of(1, 1, 1), experts_of(1, 1)}) {
    double parameters = embedding_work(run).parameters;  // the head is tied to it
    for (int64_t layer = 0; layer < run.model.n_layers; ++layer) {
      const LayerWork work = layer_work(run, layer);
      parameters += work.parameters + work.expert_parameters;
    }
    const auto total = static_cast<double>(model::count_parameters(run.model).total());
    EXPECT_NEAR(parameters / total, 1, 1e-3);  // norms
  }
}

TEST(PlanStepTime, AFullPipelineIsSlowerByItsBubble) {
  config::RunConfig run = run_of(1, 4, 1);
  run.train.global_batch = 16;  // 8 micro-batches
  const StepTime step = step_time(run, h100());
  EXPECT_EQ(step.micro_batches, 8);
  EXPECT_NEAR(step.bubble, 3.0 / 11, 0.06);  // chunks are not quite equal
  run.train.global_batch = 512;
  EXPECT_LT(step_time(run, h100()).bubble, step.bubble / 3);
  run.train.global_batch = 1 << 20;  // extrapolated, not simulated
  const StepTime endless = step_time(run, h100());
  EXPECT_GT(endless.bubble, 0);
  EXPECT_LT(endless.bubble, 0.1);
  run.train.global_batch = 1 << 19;
  EXPECT_NEAR(endless.seconds / step_time(run, h100()).seconds, 2, 1e-3);
}

TEST(PlanStepTime, MoreRanksOfAnAxisCostItsCommunication) {
  EXPECT_EQ(seconds_of(step_time(run_of(1, 1, 8), h100()), "tensor communication"), 0);
  EXPECT_GT(seconds_of(step_time(run_of(8, 1, 1), h100()), "tensor communication"), 0);
  // The same sums beyond one machine of eight GPUs, where the ring has the links of all eight.
  EXPECT_GT(seconds_of(step_time(run_of(16, 1, 1), h100()), "tensor communication"),
            seconds_of(step_time(run_of(8, 1, 1), h100()), "tensor communication"));
  EXPECT_GT(seconds_of(step_time(experts_of(8, 8), h100()), "expert communication"), 0);
  EXPECT_EQ(seconds_of(step_time(experts_of(8, 1), h100()), "expert communication"), 0);
  const StepTime hidden = step_time(run_of(1, 1, 8), h100()),
                 shown = step_time(run_of(1, 1, 8), h100(), {.data_overlap = 0});
  EXPECT_GT(shown.seconds, hidden.seconds);
  EXPECT_NEAR(shown.seconds - hidden.seconds, seconds_of(hidden, "data:"), 1e-9);
}

TEST(PlanStepTime, RecomputationCostsTheForwardAgain) {
  config::RunConfig run = run_of(1, 1, 1);
  const StepTime none = step_time(run, h100());
  run.train.recompute = Recompute::kBlock;
  const StepTime block = step_time(run, h100());
  run.train.recompute = Recompute::kSelective;
  const StepTime selective = step_time(run, h100());
  EXPECT_NEAR(block.seconds / none.seconds, 1.3, 0.05);
  EXPECT_GT(selective.seconds, none.seconds);
  EXPECT_LT(selective.seconds, 1.05 * none.seconds);
  EXPECT_EQ(block.model_flops, none.model_flops);
}

TEST(PlanStepTime, AMissingLinkIsAnError) {
  Device alone = h100();
  alone.inter = {};
  EXPECT_GT(step_time(run_of(1, 1, 8), alone).seconds, 0);
  EXPECT_THAT(ashlar::testing::error_of([&] { step_time(run_of(1, 1, 16), alone); }).what(),
              HasSubstr("h100-sxm: expected [inter]"));
  alone.intra = {};
  EXPECT_GT(step_time(run_of(1, 1, 1), alone).seconds, 0);
  EXPECT_THAT(ashlar::testing::error_of([&] { step_time(run_of(2, 1, 1), alone); }).what(),
              HasSubstr("ashlar launch -np 2 bench device"));
}

TEST(PlanStepTime, ARingCrossesMachinesWithTheLinksOfAllItsRanksThere) {
  const Device& d = h100();
  const Collectives collectives(d, 1);
  constexpr double kBytes = 1e12;  // latency does not count
  EXPECT_NEAR(collectives.all_reduce(kBytes, {8, 1}), 2 * 7.0 / 8 * kBytes / d.intra.bandwidth, 1e-3);
  // Two ranks of each machine are in the group, then one.
  EXPECT_NEAR(collectives.reduce_scatter(kBytes, {4, 4}), 3.0 / 4 * kBytes / (2 * d.inter.bandwidth), 1e-3);
  EXPECT_NEAR(collectives.reduce_scatter(kBytes, {4, 8}), 3.0 / 4 * kBytes / d.inter.bandwidth, 1e-3);
  EXPECT_NEAR(collectives.all_to_all(kBytes, {16, 1}), 8.0 / 15 * kBytes / d.inter.bandwidth, 1e-3);
  EXPECT_EQ(collectives.all_reduce(kBytes, {1, 1}), 0);
}

TEST(PlanFit, RatesAreFoundAgain) {
  const DtypeRates given{.sustained = 5e11, .half_terms = 40};
  std::vector<ProductSample> products;
  for (const double terms : {64.0, 128.0, 512.0, 1024.0})
    products.push_back({.flops = 1e9 * terms, .terms = terms, .seconds = given.seconds(1e9 * terms, terms)});
  DtypeRates found;
  fit_products(products, found);
  EXPECT_NEAR(found.sustained / given.sustained, 1, 1e-6);
  EXPECT_NEAR(found.half_terms, 40, 1e-3);
  // The second message was held up by other load.
  const std::vector<LinkSample> messages = {{64, 2, 4e-6}, {1e6, 2, 1e-1}, {1e8, 2, 1e-2}};
  EXPECT_DOUBLE_EQ(fastest_link(messages).bandwidth, 1e10);
  EXPECT_DOUBLE_EQ(fastest_link(messages).latency, 2e-6);
}

}  // namespace
}  // namespace ashlar::plan
