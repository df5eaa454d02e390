// Runs whose optimizer state is bf16: their resume, their checkpoints, and the change of a run from or to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "core/base/strings.h"
#include "core/io/safetensors.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NarrowStateRun : public ::testing::Test {
 protected:
  /// Trains with these words and without validation; returns what was said.
  std::string train(const std::string& words) {
    const ShellResult r = run_.ashlar("train tiny.toml train.eval_every=0 schedule.kind=constant " + words);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  }
  /// The number of tensors of each type in the file of the optimizer's state.
  std::map<std::string, int> types_of(const std::string& run, int step) {
    const io::SafetensorsReader file(run_.dir() / run / "checkpoints" / str_cat("step-0000000", step) /
                                     "optimizer-00000.safetensors");
    std::map<std::string, int> types;
    for (const io::TensorSpec& tensor : file.tensors()) ++types[std::string(io::name_of(tensor.dtype))];
    return types;
  }
  RunFixture run_;
};

TEST_F(NarrowStateRun, ContinuesToTheBit) {
  const std::string narrow = " optimizer.state_dtype=bf16";
  train("run.dir=whole train.steps=9" + narrow);
  train("run.dir=parts train.steps=6" + narrow);
  const std::string said = train("run.dir=parts train.steps=9" + narrow);
  EXPECT_THAT(said, AllOf(HasSubstr("step-00000006 at step 6"), Not(HasSubstr("optimizer.state_dtype was"))));
  const auto rows = run_.exact_metrics("whole");
  EXPECT_EQ(rows.size(), 9U + 1) << "and the validation at the end";
  auto parts = run_.exact_metrics("parts");
  // The first part validated at its own end.
  std::erase_if(parts, [&](const std::string& row) { return std::ranges::find(rows, row) == rows.end(); });
  EXPECT_EQ(parts, rows);
  EXPECT_EQ(run_.read("parts/checkpoints/step-00000009/optimizer-00000.safetensors"),
            run_.read("whole/checkpoints/step-00000009/optimizer-00000.safetensors"));
  train("run.dir=wide train.steps=9");
  EXPECT_NE(run_.exact_metrics("wide"), rows);
  train("run.dir=other train.steps=9 run.seed=4 " + narrow);
  EXPECT_NE(run_.exact_metrics("other"), rows);
}

TEST_F(NarrowStateRun, AResumeWithTheOtherTypeConvertsAndSaysSo) {
  train("run.dir=a train.steps=3 schedule.warmup_steps=1");
  const auto wide = types_of("a", 3);
  ASSERT_EQ(wide.size(), 1U);
  EXPECT_EQ(wide.begin()->first, "F32");
  const std::string there = train("run.dir=a train.steps=6 schedule.warmup_steps=1 optimizer.state_dtype=bf16");
  EXPECT_THAT(there, HasSubstr("changed since the checkpoint: optimizer.state_dtype was \"fp32\", is \"bf16\""));
  const auto narrow = types_of("a", 6);
  ASSERT_EQ(narrow.size(), 1U);
  EXPECT_EQ(narrow.begin()->first, "BF16");
  EXPECT_EQ(narrow.begin()->second, wide.begin()->second);
  const std::string back = train("run.dir=a train.steps=9 schedule.warmup_steps=1 optimizer.state_dtype=fp32");
  EXPECT_THAT(back, HasSubstr("changed since the checkpoint: optimizer.state_dtype was \"bf16\", is \"fp32\""));
  EXPECT_EQ(types_of("a", 9), wide);
  EXPECT_EQ(run_.metric("a", "loss").size(), 9U);
}

// The weights of a checkpoint are what they always were.
TEST_F(NarrowStateRun, OthersReadItsWeights) {
  train("run.dir=a train.steps=3 schedule.warmup_steps=1 optimizer.state_dtype=bf16");
  const ShellResult exported = run_.ashlar("export a hf");
  ASSERT_EQ(exported.code, 0) << exported.err;
  const io::SafetensorsReader file(run_.dir() / "hf/model.safetensors");
  EXPECT_GT(file.tensors().size(), 10U);
  for (const io::TensorSpec& tensor : file.tensors()) EXPECT_THAT(tensor.name, Not(HasSubstr("exp_avg")));
  EXPECT_EQ(run_.ashlar("eval a").code, 0);
  const std::string said = train("run.dir=b run.init_from=a train.steps=3 schedule.warmup_steps=1");
  EXPECT_THAT(said, HasSubstr("a fresh optimizer"));
}

TEST_F(NarrowStateRun, Fp64RunsRefuseIt) {
  const ShellResult r = run_.ashlar("train tiny.toml run.dtype=fp64 optimizer.state_dtype=bf16");
  EXPECT_EQ(r.code, kInput);
  EXPECT_THAT(r.err, AllOf(HasSubstr("optimizer.state_dtype = \"bf16\""), HasSubstr("run.dtype is fp32 or bf16")));
  EXPECT_FALSE(std::filesystem::exists(run_.dir() / "run"));
  const ShellResult word = run_.ashlar("train tiny.toml optimizer.state_dtype=fp16");
  EXPECT_EQ(word.code, kInput);
  EXPECT_THAT(word.err, AllOf(HasSubstr("optimizer.state_dtype"), HasSubstr("\"fp32\""), HasSubstr("\"bf16\"")));
}

}  // namespace
}  // namespace ashlar::testing
