// Runs with experts that stop and go on, or start from a checkpoint: what they keep, and which keys may change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/strings.h"
#include "parallel/checkpoint/reader.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/file_bytes.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class ExpertRuns : public ::testing::Test {
 protected:
  static constexpr const char* kFew = "schedule.kind=constant train.eval_every=0 checkpoint.every=6 ";
  std::string must(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r.out;
  }
  /// Trains with 4 experts to step `steps`, or goes on to it.
  std::string train(const std::string& run, int steps, const std::string& keys, const std::string& command = "") const {
    return must(
        str_cat(command, "train tiny.toml moe.experts=4 ", kFew, "run.dir=", run, " train.steps=", steps, " ", keys));
  }
  /// Of each step the load of a layer: counts and the range of the bias.
  std::vector<std::string> loads(const std::string& run, const char* layer) const {
    std::vector<std::string> all;
    std::istringstream rows(run_.read(run + "/metrics.jsonl"));
    for (std::string line; std::getline(rows, line);)
      if (const auto row = nlohmann::json::parse(line); row.contains("stats"))
        all.push_back(row.at("stats").at(layer).dump());
    return all;
  }
  template <typename T>
  std::vector<T> tensor(const std::string& run, int step, const std::string& name) const {
    checkpoint::CheckpointReader reader(run_.dir() / run / "checkpoints" / step_name(step));
    std::vector<T> values(static_cast<size_t>(reader.at(name).num_elems()));
    reader.read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }
  static std::string step_name(int step) { return str_cat(step < 10 ? "step-0000000" : "step-000000", step); }
  /// Expects equal losses and norms of gradients, relative to `bound`; to the bit without one.
  void expect_same_steps(const std::string& run, const std::string& other, double bound = 0) const {
    for (const char* key : {"loss", "grad_norm"}) {
      const std::vector<double> got = run_.metric(run, key), expected = run_.metric(other, key);
      ASSERT_EQ(got.size(), expected.size()) << key;
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(std::abs(got[i] - expected[i]), bound * expected[i]) << key << " of step " << i + 1;
    }
  }
  void expect_same_files(const std::string& run, const std::string& other, int step) const {
    for (const char* file : {"weights-00000.safetensors", "optimizer-00000.safetensors"}) {
      const auto path = [&](const std::string& of) { return run_.dir() / of / "checkpoints" / step_name(step) / file; };
      EXPECT_TRUE(slurp(path(run)) == slurp(path(other))) << file << " of " << run;
    }
  }
  RunFixture run_;
};

constexpr const char* kBiases = "moe.selection_bias=true moe.bias_rate=0.0625 log.stats_every=1 ";

TEST_F(ExpertRuns, SelectionBiasesGoOnToTheBit) {
  const std::string keys = str_cat(kBiases, "moe.balance=previous ");
  train("whole", 12, keys);
  train("parts", 6, keys);
  EXPECT_THAT(train("parts", 12, keys), HasSubstr("continuing from parts/checkpoints/step-00000006"));
  expect_same_steps("parts", "whole");
  const std::vector<std::string> expected = loads("whole", "blocks.1.moe");
  EXPECT_EQ(expected.size(), 12U);
  EXPECT_EQ(loads("parts", "blocks.1.moe"), expected);
  expect_same_files("parts", "whole", 12);
}

TEST_F(ExpertRuns, SelectionBiasesGoOnWithExpertsOverRanks) {
  const std::string keys = str_cat(kBiases, "run.dtype=fp64 ");
  train("whole", 11, keys);
  train("parts", 6, keys);
  EXPECT_THAT(train("parts", 11, keys + "mesh.expert=2", "launch -np 2 "),
              HasSubstr("for activations, room for experts with 1.5 times their even share of the tokens"));
  expect_same_steps("parts", "whole", 1e-11);
  EXPECT_EQ(loads("parts", "blocks.1.moe"), loads("whole", "blocks.1.moe"));
  for (const int layer : {0, 1, 2}) {
    const std::string name = str_cat("blocks.", layer, ".moe.router.selection_bias");
    const std::vector<double> biases = tensor<double>("whole", 11, name);
    EXPECT_THAT(biases, Not(Each(0.0)));
    EXPECT_EQ(tensor<double>("parts", 11, name), biases) << "they follow from counts alone";
  }
}

TEST_F(ExpertRuns, TheLearningRateOfExpertsGoesOnToTheBit) {
  const std::string keys = "optimizer.expert_lr_scale=0.25 ";
  train("whole", 12, keys);
  train("parts", 6, keys);
  must("train parts train.steps=12");
  expect_same_steps("parts", "whole");
  expect_same_files("parts", "whole", 12);
  train("equal", 12, "");
  EXPECT_NE(run_.metric("equal", "loss"), run_.metric("whole", "loss"));
}

/// Counts of the step before are state that only one of the balances has.
TEST_F(ExpertRuns, AnotherBalanceMayGoOn) {
  const auto resumed = [&](const std::string& run, const std::string& keys) {
    train(run, 6, "moe.balance_coef=1");
    return train(run, 8, "moe.balance_coef=1 " + keys);
  };
  const std::string said = resumed("previous", "moe.balance=previous");
  EXPECT_THAT(said, AllOf(HasSubstr("changed since the checkpoint: moe.balance was \"sequence\", is \"previous\""),
                          HasSubstr("the checkpoint has no counts of choices, which moe.balance = \"previous\" uses: "
                                    "the next step has no balance loss")));
  resumed("none", "moe.balance=none");
  resumed("sequence", "");
  const auto norms = [&](const char* run) { return run_.metric(run, "grad_norm"); };
  const std::vector<double> previous = norms("previous"), none = norms("none"), sequence = norms("sequence");
  ASSERT_EQ(previous.size(), 8U);
  EXPECT_EQ(previous[6], none[6]) << "no counts, no balance loss";
  EXPECT_NE(previous[6], sequence[6]);
  EXPECT_NE(previous[7], none[7]) << "counts of step 7";
  // Back: the counts are left out, and nothing misses them.
  EXPECT_THAT(train("previous", 10, "moe.balance_coef=2 moe.balance=sequence"),
              AllOf(HasSubstr("moe.balance was \"previous\", is \"sequence\""),
                    HasSubstr("moe.balance_coef was 1.0, is 2.0"), Not(HasSubstr("no counts of choices"))));
  EXPECT_EQ(norms("previous").size(), 10U);
}

TEST_F(ExpertRuns, TheRateOfBiasesMayChange) {
  train("run", 5, kBiases);
  const std::vector<float> before = tensor<float>("run", 5, "blocks.0.moe.router.selection_bias");
  EXPECT_THAT(before, Not(Each(0.0F)));
  EXPECT_THAT(train("run", 8, "moe.selection_bias=true moe.bias_rate=0"),
              HasSubstr("moe.bias_rate was 0.0625, is 0.0"));
  EXPECT_EQ(tensor<float>("run", 8, "blocks.0.moe.router.selection_bias"), before);
}

TEST_F(ExpertRuns, ASelectionBiasOfARunStaysAsItIs) {
  train("without", 6, "");
  train("with", 6, kBiases);
  const auto refused = [&](const std::string& run, const std::string& keys, const std::string& line) {
    const ShellResult r = run_.ashlar(
        str_cat("train tiny.toml moe.experts=4 ", kFew, "run.dir=", run, " train.steps=8 log.stats_every=1 ", keys));
    EXPECT_EQ(r.code, kInput);
    EXPECT_EQ(r.err, "ashlar: [config] " + line + "\n");
  };
  refused("without", "moe.selection_bias=true moe.bias_rate=0.5",
          "moe.selection_bias = true: expected false, the value of the run in without; set moe.selection_bias back, or "
          "choose another run.dir to begin a new run");
  refused("with", "moe.balance=none",
          "moe.selection_bias = false: expected true, the value of the run in with; set moe.selection_bias back, or "
          "choose another run.dir to begin a new run");
}

TEST_F(ExpertRuns, AStartMayTakeAndLeaveASelectionBias) {
  train("without", 6, "");
  train("with", 5, "moe.selection_bias=true moe.bias_rate=1");
  const auto start = [&](const std::string& run, const std::string& keys) {
    return train(run, 1, keys + " schedule.warmup_steps=0 'run.init_change=[\"moe.selection_bias\"]'");
  };
  EXPECT_THAT(start("added", "run.init_from=without moe.selection_bias=true moe.bias_rate=0.25"),
              HasSubstr("the checkpoint has no selection bias of experts: it begins at 0"));
  EXPECT_THAT(start("same", "run.init_from=without"), Not(HasSubstr("selection bias")));
  expect_same_steps("added", "same");  // biases of 0 change no choice
  for (const float bias : tensor<float>("added", 1, "blocks.0.moe.router.selection_bias"))
    EXPECT_TRUE(bias == 0 || std::abs(bias) == 0.25F) << bias;
  EXPECT_THAT(start("left", "run.init_from=with moe.selection_bias=false"),
              HasSubstr("the selection bias of experts is left out: tokens choose others"));
  EXPECT_THAT(start("kept", "run.init_from=with"), Not(HasSubstr("left out")));
  EXPECT_NE(run_.metric("left", "loss"), run_.metric("kept", "loss"));
}

/// GLM 4.5's form. The folder and what is imported of it choose as the run does.
TEST_F(ExpertRuns, TrainedBiasesAreExportedAndImported) {
  train("run", 6,
        "moe.selection_bias=true moe.bias_rate=0.25 moe.balance=none moe.score=sigmoid moe.sum_eps=1e-20 "
        "moe.shared_d_ff=24 moe.first_layer=1 dropout.resid=0 dropout.attn=0");
  EXPECT_THAT(must("export run folder"), HasSubstr("Glm4MoeForCausalLM"));
  must("import folder again");
  const auto biases = [&](const std::string& dir) {
    checkpoint::CheckpointReader reader(run_.dir() / dir);
    std::vector<float> values(4);
    reader.read("blocks.2.moe.router.selection_bias", std::as_writable_bytes(std::span(values)));
    return values;
  };
  const std::vector<float> trained = biases("run/checkpoints/step-00000006");
  EXPECT_THAT(trained, Not(Each(0.0F)));
  EXPECT_EQ(biases("again"), trained);
  const auto loss = [&](const std::string& of) {
    const std::string out = must("eval " + of + " --data data --sequence-length 16 --batch 2 --sequences 8");
    return out.substr(0, out.find(" over "));
  };
  EXPECT_EQ(loss("again"), loss("run"));
}

}  // namespace
}  // namespace ashlar::testing
