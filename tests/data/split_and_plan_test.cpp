#include <gtest/gtest.h>

#include <array>

#include <cmath>

#include "core/base/error.h"
#include "data/build/build_plan.h"
#include "data/build/validation_split.h"
#include "data/ordered_parallel.h"

namespace ashlar::data {
namespace {

TEST(ValidationSplit, RuleByDocuments) {
  EXPECT_EQ(split_rule(0, 100), SplitRule::kNone);
  EXPECT_EQ(split_rule(0.1, 1), SplitRule::kTail);
  EXPECT_EQ(split_rule(0.1, 19), SplitRule::kTail);
  EXPECT_EQ(split_rule(0.1, 20), SplitRule::kDocuments);
}

TEST(ValidationSplit, TakesTheShareOfWholeDocumentsAndAlwaysOne) {
  for (const double share : {0.0001, 0.01, 0.03, 0.1, 0.25, 1.0 / 3, 0.5, 0.9}) {
    int64_t chosen = 0;
    for (int64_t i = 0; i < 100'000; ++i) {
      chosen += is_validation_document(share, i) ? 1 : 0;
      // One of each run of 1/share; the run that is under way may not have had its turn.
      ASSERT_NEAR(static_cast<double>(chosen), static_cast<double>(i + 1) * share, 2.01) << share << " at " << i;
      if (i == 19) {
        ASSERT_GE(chosen, 1) << share;
      }
    }
    EXPECT_NEAR(static_cast<double>(chosen), 100'000 * share, 1.5) << share;
  }
}

TEST(ValidationSplit, AnyDocumentOfARunMayBeTheOne) {
  // Runs of four; the first one has its own rule.
  std::array<int, 4> at{};
  for (int64_t i = 4; i < 4004; ++i) at[i % 4] += is_validation_document(0.25, i) ? 1 : 0;
  for (const int n : at) EXPECT_NEAR(n, 250, 70);  // deviation 13.7: five of them
}

TEST(ValidationSplit, TailIsTheLastShare) {
  EXPECT_EQ(tail_train_tokens(0.1, 1'115'395), 1'003'855);
  EXPECT_EQ(tail_train_tokens(0.5, 3), 1);
}

BuildPlan sample_plan() {
  BuildPlan plan;
  plan.fingerprint = "abc";
  plan.tokenizer_json = "{\"kind\":\"bytes\"}";
  plan.shard_tokens = 65536;
  SourceList sources;
  sources.files = {{.path = "a", .shown = "a", .bytes = 100}, {.path = "b", .shown = "b", .bytes = 35}};
  plan.blocks = split_into_blocks(sources, 40);
  return plan;
}

TEST(BuildPlan, BlocksCoverTheFiles) {
  const BuildPlan plan = sample_plan();
  ASSERT_EQ(plan.blocks.size(), 4U);
  EXPECT_EQ(plan.blocks[2].begin, 80);
  EXPECT_EQ(plan.blocks[2].end, 100);
  EXPECT_EQ(plan.blocks[3].file, 1);
  EXPECT_EQ(plan.blocks[3].end, 35);
}

TEST(BuildPlan, TailSplitPlacesBlocksInBothParts) {
  BuildPlan plan = sample_plan();
  PlanBuilder builder(plan, 0.5);
  builder.add(0, {.pieces = {{40, false}}});
  builder.add(1, {.pieces = {{40, false}}});
  builder.add(2, {.pieces = {{21, true}}});
  builder.add(3, {.pieces = {{36, true}}});
  builder.finish();
  EXPECT_EQ(plan.rule, SplitRule::kTail);
  EXPECT_EQ(plan.tokens, 137);
  EXPECT_EQ(plan.train_tokens, 68);
  const int64_t train[] = {0, 40, 68, 68, 68}, validation[] = {0, 0, 12, 33, 69};
  for (int64_t i = 0; i <= 4; ++i) {
    EXPECT_EQ(plan.part_start(Part::kTrain, i), train[i]);
    EXPECT_EQ(plan.part_start(Part::kValidation, i), validation[i]);
  }
}

TEST(BuildPlan, ComesBackFromItsBytesAndDamageIsSeen) {
  BuildPlan plan = sample_plan();
  PlanBuilder builder(plan, 0.1);
  for (int64_t i = 0; i < 4; ++i) builder.add(i, {.pieces = {{40, i >= 2}}});
  builder.finish();
  const std::string bytes = serialise_plan(plan);
  const BuildPlan back = parse_plan(bytes);
  EXPECT_EQ(serialise_plan(back), bytes);
  EXPECT_EQ(back.part_start(Part::kValidation, 4), plan.part_start(Part::kValidation, 4));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    ASSERT_EQ(parse_plan(bad).fingerprint, "") << i;
    ASSERT_EQ(parse_plan(bytes.substr(0, i)).fingerprint, "") << i;
  }
}

TEST(BuildPlan, NothingToTrainOnIsAnError) {
  BuildPlan plan = sample_plan();
  PlanBuilder empty(plan, 0.1);
  for (int64_t i = 0; i < 4; ++i) empty.add(i, {.pieces = {}, .read = {.empty_documents = 1}});
  EXPECT_THROW(empty.finish(), Error);
  PlanBuilder one(plan, 0.9);
  one.add(0, {.pieces = {{1, true}}});
  EXPECT_THROW(one.finish(), Error);
}

TEST(OrderedParallel, ConsumesInOrderOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 7}) {
    int64_t expected = 0;
    ordered_parallel(
        threads, 2000, [](int64_t i, int) { return i * i; },
        [&](int64_t i, int64_t square) {
          ASSERT_EQ(i, expected++);
          ASSERT_EQ(square, i * i);
        });
    EXPECT_EQ(expected, 2000);
  }
}

TEST(OrderedParallel, GivesATurnBeforeAResult) {
  std::vector<int64_t> order;
  const auto run = [&](int64_t broken) {
    order.clear();
    ordered_parallel(
        4, 200,
        [&](int64_t i, int, const auto& turn) {
          if (i % 3 != 0) return i;
          turn();
          if (i == broken) throw std::runtime_error("broken");
          order.push_back(i);  // unguarded: no other thread may be here or consume
          turn();
          return i;
        },
        [&](int64_t i, int64_t) { order.push_back(i); });
  };
  run(-1);
  ASSERT_EQ(order.size(), 267U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_THROW(run(99), std::runtime_error);
  EXPECT_EQ(order.back(), 98);
  EXPECT_EQ(order.size(), 99U + 33U);
}

TEST(OrderedParallel, TheLowestFailureWins) {
  for (int trial = 0; trial < 50; ++trial) {
    int64_t consumed = 0;
    try {
      ordered_parallel(
          4, 1000,
          [](int64_t i, int) {
            if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
            return i;
          },
          [&](int64_t, int64_t) { ++consumed; });
      FAIL();
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "7");
    }
    EXPECT_EQ(consumed, 7);
  }
}

}  // namespace
}  // namespace ashlar::data
