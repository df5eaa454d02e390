// What a step reports: each field with its unit, and the rows of a run against what its configuration says.
#include "launch/training/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/training/memory.h"
#include "launch/training/terminal_sink.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::training {
namespace {

StepEvent row() {
  StepEvent r;
  r.step = 7;
  r.total_steps = 1234;
  r.result = {.loss = 2.5,
              .z_loss = 0.125,
              .mean_log_z = 3.25,
              .max_log_z = 4.5,
              .max_logit = 5.75,
              .grad_norm = 6.0625,
              .clip_scale = 0.375,
              .tokens = 99,
              .valid_targets = 88};
  r.lr = 0.03125;
  r.tokens = 1234567;
  r.step_ms = 1500;
  r.tokens_per_sec = 65432.5;
  r.mfu = 0.4375;
  r.mfu_causal = 0.40625;
  r.peak_memory_bytes = 7340032;
  r.data_wait_ms = 12.5;
  r.slowest = {.rank = 3, .ms = 1400.25};
  r.eta_sec = 3725;
  return r;
}

TEST(Metrics, ARowHasEachFieldOnce) {
  const nlohmann::json expected = {{"step", 7},
                                   {"loss", 2.5},
                                   {"grad_norm", 6.0625},
                                   {"lr", 0.03125},
                                   {"tokens", 1234567},
                                   {"step_ms", 1500.0},
                                   {"tokens_per_sec", 65432.5},
                                   {"mfu", 0.4375},
                                   {"mfu_causal", 0.40625},
                                   {"peak_memory_bytes", 7340032},
                                   {"data_wait_ms", 12.5},
                                   {"slowest_rank", 3},
                                   {"slowest_rank_ms", 1400.25},
                                   {"z_loss", 0.125},
                                   {"mean_log_z", 3.25},
                                   {"max_log_z", 4.5},
                                   {"max_logit", 5.75},
                                   {"clip_scale", 0.375},
                                   {"valid_targets", 88}};
  const nlohmann::json got = nlohmann::json::parse(to_json(row()));
  // A field more is no error here, one that is missing or differs is.
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(got.value(key, nlohmann::json("missing")), value) << key;
  StepEvent unknown = row();
  unknown.mfu = unknown.mfu_causal = -1;
  EXPECT_TRUE(nlohmann::json::parse(to_json(unknown)).at("mfu").is_null());
  EXPECT_TRUE(nlohmann::json::parse(to_json(unknown)).at("mfu_causal").is_null());
  unknown.slowest = {};
  EXPECT_FALSE(nlohmann::json::parse(to_json(unknown)).contains("slowest_rank"));
}

TEST(Metrics, TheLineIsForPeople) {
  EXPECT_EQ(to_line(row()),
            "step    7/1234  loss 2.5000  grad_norm 6.062  lr 3.12e-02  tokens 1,234,567  1500.0 ms  65,432 tok/s  mfu "
            "43.8%  mem 7.3 MB  data 12.5 ms  eta 1:02:05");
  EXPECT_EQ(to_short_line(row()),
            "step    7/1234  loss 2.5000  grad_norm 6.06  lr 3.12e-02  65.4k tok/s  mfu 43.8%  eta 1:02:05");
  StepEvent longest = row();
  longest.step = longest.total_steps = 999'999;
  longest.result.loss = 10.5;
  longest.result.grad_norm = 999;
  longest.eta_sec = 999 * 3600;
  EXPECT_LE(to_short_line(longest).size(), 100U) << to_short_line(longest);
  longest.gpu.limits = "power cap";
  EXPECT_TRUE(to_short_line(longest).ends_with("  eta 999:00:00  limited by power cap"));
  StepEvent unknown = row();
  unknown.mfu = -1;
  EXPECT_NE(to_line(unknown).find("mfu n/a"), std::string::npos);
}

TEST(Metrics, UnitsForPeople) {
  for (const auto& [count, text] : std::vector<std::pair<double, std::string>>{{0, "0"},
                                                                               {999.4, "999"},
                                                                               {999.6, "1.00k"},
                                                                               {9994, "9.99k"},
                                                                               {9996, "10.0k"},
                                                                               {99960, "100k"},
                                                                               {1.2e6, "1.20M"},
                                                                               {3.456e9, "3.46G"}})
    EXPECT_EQ(human_count(count), text);
  for (const auto& [seconds, text] : std::vector<std::pair<double, std::string>>{
           {0.2, "0s"}, {59.4, "59s"}, {60, "1:00"}, {245, "4:05"}, {3599.6, "1:00:00"}, {3723, "1:02:03"}})
    EXPECT_EQ(human_seconds(seconds), text);
  for (const auto& [bytes, text] : std::vector<std::pair<int64_t, std::string>>{
           {512, "1 KB"}, {999'000, "999 KB"}, {1'000'000, "1.0 MB"}, {2'340'000'000, "2.34 GB"}})
    EXPECT_EQ(human_bytes(bytes), text);
}

// Twelve steps with four sequences of 16 tokens, a model of three layers counted by hand.
TEST(Metrics, TheRowsOfARunAreWhatItsConfigurationSays) {
  const ashlar::testing::RunFixture run;
  const auto r = run.ashlar(
      "train tiny.toml train.steps=12 schedule.kind=wsd schedule.warmup_steps=3 schedule.decay_steps=4 "
      "schedule.min_ratio=0.25 optimizer.clip=0.5 train.eval_every=0 train.eval_sequences=4 checkpoint.every=0");
  ASSERT_EQ(r.code, 0) << r.err;
  double peak = 0;
  const std::string said = "mfu is relative to ";
  for (const std::string* text : {&r.out, &r.err}) {
    if (const size_t at = text->find(said); at != std::string::npos)
      peak = 1e9 * std::stod(text->substr(at + said.size()));
  }
  ASSERT_GT(peak, 1e9);
  // Products with weights: q, k, v and out of 16 x 16, three of 16 x 24, and the head of 257 x 16.
  const double flops = 6.0 * (3 * (4 * 16 * 16 + 3 * 16 * 24) + 257 * 16), attention = 12.0 * 3 * 16 * 16;
  const double lrs[] = {1 / 3.0, 2 / 3.0, 1, 1, 1, 1, 1, 1, 1, 1 - 0.75 / 4, 1 - 0.75 / 2, 1 - 0.75 * 3 / 4};
  int64_t step = 0, evaluations = 0;
  std::istringstream rows(run.read("run/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    SCOPED_TRACE(line);
    const auto json = nlohmann::json::parse(line);
    if (json.contains("val_loss")) {
      ++evaluations;
      EXPECT_EQ(json.at("step"), 12);
      EXPECT_EQ(json.at("val_tokens"), 2 * 2 * 16);  // micro-batches of two sequences
      continue;
    }
    ++step;
    ASSERT_LE(step, 12);
    EXPECT_EQ(json.at("step"), step);
    EXPECT_EQ(json.at("tokens"), step * 4 * 16);
    EXPECT_EQ(json.at("valid_targets"), 4 * 16);
    EXPECT_NEAR(json.at("lr").get<double>(), 1e-2 * lrs[step - 1], 1e-14);
    const double per_second = json.at("tokens_per_sec"), norm = json.at("grad_norm");
    EXPECT_NEAR(per_second, 64 / (json.at("step_ms").get<double>() / 1e3), 1e-9 * per_second);
    EXPECT_NEAR(json.at("clip_scale").get<double>(), std::min(1.0, 0.5 / norm), 1e-9);
    // The peak is printed as whole GFLOP/s.
    const double mfu = (flops + attention) * per_second / peak, causal = (flops + attention / 2) * per_second / peak;
    EXPECT_NEAR(json.at("mfu").get<double>(), mfu, mfu * 0.6e9 / peak);
    EXPECT_NEAR(json.at("mfu_causal").get<double>(), causal, causal * 0.6e9 / peak);
    EXPECT_GT(json.at("peak_memory_bytes").get<int64_t>(), 4'000'000);
  }
  EXPECT_EQ(step, 12);
  EXPECT_EQ(evaluations, 1);
}

}  // namespace
}  // namespace ashlar::training
