// ashlar plan: what a run would take, before it starts; and what train says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand() {
    run_.write("big.toml", R"([model]
n_layers = 80
d_model = 8192
n_heads = 64
n_kv_heads = 8
d_ff = 28672
[vocab]
size = 128256
[train]
sequence_length = 8192
micro_batch = 1
global_batch = 512
steps = 1000
)");
  }
  nlohmann::json json(const std::string& words) const {
    const ShellResult r = run_.ashlar(str_cat("plan ", words, " --json"));
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out, nullptr, false);
  }
  std::string input_error(const std::string& words) const {
    const ShellResult r = run_.ashlar("plan " + words);
    EXPECT_EQ(r.code, kInput) << r.out;
    EXPECT_EQ(std::ranges::count(r.err, '\n'), 1) << r.err;
    return r.err;
  }
  RunFixture run_;
};

/// "weights 1.23 MB" of a line, in bytes.
double planned_bytes(const std::string& line, const std::string& part) {
  const size_t at = line.find(part + " ");
  if (at == std::string::npos) return -1;
  std::istringstream text(line.substr(at + part.size() + 1));
  double value = 0;
  std::string unit;
  text >> value >> unit;
  return value * (unit.starts_with("KB") ? 1e3 : unit.starts_with("MB") ? 1e6 : 1e9);
}

std::string planned_line(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

// The whole trainer: batches, validation, statistics, snapshots, in the order of a run.
TEST_F(PlanCommand, TrainPlansWhatItsAllocatorsReportAtTheEnd) {
  const std::pair<const char*, const char*> runs[] = {
      {"one", "train tiny.toml run.dir=one train.steps=4 train.eval_every=2 checkpoint.every=2 log.stats_every=2"},
      {"two",
       "launch -np 2 train tiny.toml run.dir=two vocab.pad_to=2 train.steps=4 mesh.tensor=2 "
       "train.recompute=block"}};
  for (const auto& [dir, words] : runs) {
    const ShellResult r =
        run_.ashlar(str_cat(words, " model.d_model=128 train.sequence_length=64 schedule.warmup_steps=1"));
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_LE(planned_line(r.out, "plan: memory ").size(), 100u);
    EXPECT_THAT(planned_line(r.out, "plan: memory "), HasSubstr(": program "));
    EXPECT_THAT(r.out, HasSubstr("plan: time unknown"));
    const std::string start = run_.read(str_cat(dir, "/start.txt"));
    const std::string plan = start.substr(std::min(start.size(), start.find("plan: ")));
    ASSERT_NE(plan, "") << start;
    const std::pair<std::string, std::string> parts[] = {{"weights", "parameters"},
                                                         {"main gradients", "gradients"},
                                                         {"master and moments", "optimizer"},
                                                         {"scratch and tables", "workspace"}};
    for (const auto& [planned, allocated] : parts) {
      const double real = planned_bytes(r.out.substr(r.out.rfind(allocated + " ")), allocated);
      EXPECT_GT(real, 0) << allocated;
      EXPECT_NEAR(planned_bytes(plan, planned), real, 0.03 * real) << plan;
    }
    const double activations = planned_bytes(plan, "activations kept") + planned_bytes(plan, "activations in use") +
                               planned_bytes(plan, "batches");
    const double real = planned_bytes(r.out.substr(r.out.rfind("activations ")), "activations");
    EXPECT_NEAR(activations, real, 0.03 * real) << plan;
    const std::string events = run_.read(str_cat(dir, "/events.jsonl"));
    const size_t line = events.rfind('\n', events.find("\"event\":\"start\"")) + 1;
    const nlohmann::json event = nlohmann::json::parse(planned_line(events.substr(line), "{"));
    EXPECT_NEAR(event.at("plan").at("memory").at("bytes").get<double>(), planned_bytes(plan, "total"), 1e5);
  }
}

TEST_F(PlanCommand, TrainSaysInAFewWordsWhyATimeIsUnknown) {
  std::filesystem::create_directories(run_.dir() / "cache/ashlar");
  run_.write("cache/ashlar/device.toml", R"(title = "a CPU without a measured link between ranks"
source = "made for this test"
kind = "cpu"
capacity = 8000000000
threads = 1
launch_gap = 5e-08
ranks_per_node = 2
[bf16]
peak = 2e+11
sustained = 1e+11
half_terms = 0.0
streaming = 1e+10
[fp32]
peak = 1e+11
sustained = 9e+10
half_terms = 0.0
streaming = 4e+10
[memory]
bandwidth = 1e+10
optimizer = 2e+10
[[attention]]
dtype = "fp32"
head_dim = 32
tokens = 128
forward = 6e+10
backward = 6e+10
[[attention]]
dtype = "bf16"
head_dim = 32
tokens = 128
forward = 6e+10
backward = 6e+10
)");
  const ShellResult r = run_.ashlar("launch -np 2 train tiny.toml train.steps=6 mesh.pipeline=2");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("plan: time unknown; start.txt and ashlar plan say why\n"));
  EXPECT_THAT(run_.read("run/start.txt"), HasSubstr("expected [intra], the link between two ranks"));
}

TEST_F(PlanCommand, PlansWithinSecondsAModelThatNoMachineHereCouldHold) {
  const nlohmann::json plan = json("big.toml --device h100-sxm -np 64 mesh.tensor=8 mesh.pipeline=8");
  EXPECT_EQ(plan["ranks"], 64);
  const double weights = plan["memory"]["parts"][0]["bytes"];
  EXPECT_NEAR(weights, 2 * 70.6e9 / 64, 0.2 * weights) << "of the worst stage, which has an end of the model";
  EXPECT_GT(plan["time"]["step_seconds"], 0);
  EXPECT_GT(plan["time"]["bubble"], 0);
}

TEST_F(PlanCommand, NamesTheCheapestChangeThatFits) {
  const nlohmann::json plan =
      json("big.toml --device h100-sxm -np 64 mesh.tensor=8 mesh.pipeline=1 train.micro_batch=8");
  EXPECT_FALSE(plan["memory"]["fits"]);
  EXPECT_TRUE(plan["change"]["memory"]["fits"]);
  EXPECT_LE(plan["change"]["memory"]["bytes"], plan["capacity_bytes"]);
  EXPECT_FALSE(plan["change"]["overrides"].empty());
}

TEST_F(PlanCommand, RanksMeshesAndSaysWhyOthersLose) {
  const ShellResult r =
      run_.ashlar("plan big.toml model.n_layers=6 train.micro_batch=4 --device a100-80gb-sxm -np 8 --meshes");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("  best\n"), HasSubstr("does not fit: needs "), HasSubstr("% slower: "),
                           HasSubstr("not possible: mesh.pipeline=8")));
}

TEST_F(PlanCommand, SweepsEveryCombination) {
  const nlohmann::json rows =
      json("tiny.toml --sweep train.recompute=none,block --sweep train.micro_batch=1,2 --device h100-sxm");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["overrides"], (nlohmann::json{"train.recompute=block", "train.micro_batch=2"}));
  EXPECT_LT(rows[0]["memory"]["bytes"], rows[1]["memory"]["bytes"]);
}

TEST_F(PlanCommand, PlansARunByItsFolderAndCountsTheCost) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=done train.steps=2 schedule.warmup_steps=1").code, 0);
  const ShellResult r = run_.ashlar("plan done train.steps=1000 --device l40s --price 2");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("memory of rank 0"), HasSubstr("fits"), HasSubstr("cost ")));
}

TEST_F(PlanCommand, RefusesWhatItCannotPlanOnOneLine) {
  EXPECT_THAT(input_error("tiny.toml --device h900"), AllOf(HasSubstr("h900"), HasSubstr("h100-sxm")));
  EXPECT_THAT(input_error("tiny.toml -np 6 mesh.tensor=4"), HasSubstr("expected a divisor of the number of ranks, 6"));
  EXPECT_THAT(input_error("tiny.toml -np 0"), HasSubstr("option -np = 0"));
  EXPECT_THAT(input_error("tiny.toml --sweep train.micro_batch=2"), HasSubstr("at least two values"));
  EXPECT_THAT(input_error("tiny.toml --meshes --sweep run.seed=1,2"), HasSubstr("one of them"));
  EXPECT_THAT(input_error("tiny.toml data.path=missing"), HasSubstr("vocab.size"));
}

}  // namespace
}  // namespace ashlar::testing
