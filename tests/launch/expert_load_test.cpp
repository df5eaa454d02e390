// What a run says about the load of its experts: rows, and warnings of experts with no or too many tokens.
#include "launch/training/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/training/metrics_file.h"

namespace ashlar::training {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Three layers, of which the first and the last have experts, two a token.
model::ModelConfig config_of(int64_t experts) {
  model::ModelConfig c;
  c.n_layers = 3;
  c.moe = {.experts = experts, .top_k = 2, .d_ff = 4, .dense_layers = {1}};
  return c;
}

TEST(ExpertLoad, IsOfEachLayerWithExperts) {
  const std::vector<double> counts = {4, 4, 4, 4, 10, 0, 6, 0};
  const std::vector<ExpertLoad> loads = expert_loads(config_of(4), counts);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0].layer, 0);
  EXPECT_EQ(loads[0].max_over_mean, 1);
  EXPECT_EQ(loads[0].idle, 0);
  EXPECT_EQ(loads[1].layer, 2);
  EXPECT_THAT(loads[1].counts, ElementsAre(10, 0, 6, 0));
  EXPECT_EQ(loads[1].max_over_mean, 2.5) << "10 of 16 choices, 4 at balance";
  EXPECT_EQ(loads[1].idle, 2);
  StatisticsEvent event{.step = 7, .tensors = {}, .residual_rms = {}, .experts = {loads[1]}};
  EXPECT_EQ(to_json(event),
            R"({"step":7,"stats":{"blocks.2.moe":{"counts":[10,0,6,0],"max_over_mean":2.5,"idle":2}}})");
  event.experts[0].bias_range = {-0.5, 0.25};
  EXPECT_EQ(to_json(event), R"({"step":7,"stats":{"blocks.2.moe":{"counts":[10,0,6,0],"max_over_mean":2.5,"idle":2,)"
                            R"("bias_range":[-0.5,0.25]}}})");
}

/// The lines of a watch that sees the same counts in steps first to last.
std::vector<std::string> lines(ExpertWatch& watch, const std::vector<double>& counts, int64_t first, int64_t last) {
  std::vector<std::string> lines;
  for (int64_t step = first; step <= last; ++step)
    for (const WarningEvent& event : watch.see(step, counts)) {
      lines.push_back(to_line(event));
      EXPECT_FALSE(is_note(event));
    }
  return lines;
}

TEST(ExpertWatch, NamesExpertsWithoutTokensOnce) {
  ExpertWatch watch(config_of(4));
  const std::vector<double> idle = {4, 4, 4, 4, 8, 0, 8, 0}, balanced = {4, 4, 4, 4, 4, 4, 4, 4};
  EXPECT_THAT(lines(watch, idle, 1, 99), IsEmpty());
  EXPECT_THAT(lines(watch, balanced, 100, 100), IsEmpty());
  EXPECT_THAT(lines(watch, idle, 101, 199), IsEmpty()) << "one token ends the row";
  EXPECT_THAT(lines(watch, idle, 200, 400),
              ElementsAre("2 experts got no token in 100 steps up to step 200 (of 4 in each layer; layer 2: 1, 3): "
                          "raise moe.balance_coef, or lower optimizer.lr"));
  EXPECT_THAT(lines(watch, balanced, 401, 401), IsEmpty());
  EXPECT_EQ(lines(watch, idle, 402, 501).size(), 1u) << "again idle";
}

TEST(ExpertWatch, NamesExpertsOfMoreThanHalfOfAllTokens) {
  ExpertWatch watch(config_of(8));
  // 16 tokens, so 32 choices, 4 of each expert at balance.
  const std::vector<double> row = {9, 8, 3, 3, 3, 2, 2, 2}, half = {8, 8, 3, 3, 3, 3, 2, 2};
  std::vector<double> counts = half;
  counts.insert(counts.end(), row.begin(), row.end());
  EXPECT_THAT(lines(watch, counts, 1, 9), IsEmpty());
  EXPECT_THAT(lines(watch, counts, 10, 60),
              ElementsAre("expert 0 of layer 2 got 56% of the tokens of step 10, compared with 25.0% at balance, and "
                          "as much in the 9 steps before: raise moe.balance_coef, or lower optimizer.lr"));
  // With 4 experts each has half of the tokens at balance: nothing is too much.
  ExpertWatch small(config_of(4));
  EXPECT_THAT(lines(small, {16, 14, 1, 1, 16, 14, 1, 1}, 1, 50), IsEmpty());
}

/// The lines name keys that this run has.
TEST(ExpertWatch, NamesTheKeysThatBalance) {
  using model::Balance;
  const auto said = [](Balance balance, bool bias) {
    model::ModelConfig config = config_of(4);
    config.moe.balance = balance;
    config.moe.selection_bias = bias;
    ExpertWatch watch(config), other(config);
    std::string idle = lines(watch, {4, 4, 4, 4, 8, 0, 8, 0}, 1, 100).back();
    std::string crowded = lines(other, {4, 4, 4, 4, 16, 0, 0, 0}, 1, 10).back();
    idle.erase(0, idle.rfind(": ") + 2);
    crowded.erase(0, crowded.rfind(": ") + 2);
    EXPECT_EQ(idle, crowded);
    return idle;
  };
  EXPECT_EQ(said(Balance::kSequence, false), "raise moe.balance_coef, or lower optimizer.lr");
  EXPECT_EQ(said(Balance::kPrevious, true), "raise moe.balance_coef or moe.bias_rate, or lower optimizer.lr");
  EXPECT_EQ(said(Balance::kNone, true), "raise moe.bias_rate, or lower optimizer.lr");
  EXPECT_EQ(said(Balance::kNone, false),
            "nothing balances them, set moe.balance, or moe.selection_bias in a new run, or lower optimizer.lr");
}

TEST(ExpertWatch, ALongListIsCut) {
  ExpertsIdle event{.experts = {}, .of = 64, .step = 100, .steps = 100, .remedy = "raise moe.balance_coef"};
  for (int64_t i = 0; i < 20; ++i) event.experts.push_back({.layer = i / 7, .expert = i});
  EXPECT_EQ(to_line(event),
            "20 experts got no token in 100 steps up to step 100 (of 64 in each layer; layer 0: 0, 1, 2, 3, 4, 5, 6; "
            "layer 1: 7, 8, 9, 10, 11 and 8 more): raise moe.balance_coef, or lower optimizer.lr");
  event.experts.resize(1);
  EXPECT_EQ(to_line(event).substr(0, 22), "1 expert got no token ");
}

}  // namespace
}  // namespace ashlar::training
