// From a Hugging Face folder to a run that trains on, in one command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class From : public ::testing::Test {
 protected:
  From() {
    must("train tiny.toml train.steps=6 run.dir=first dropout.resid=0 dropout.attn=0");
    must("export first hub/a-model");
    must("data build text.txt --out set --tokenizer hub/a-model");
  }
  std::string must(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r.out;
  }
  RunFixture run_;
};

constexpr const char* kTrainFromHub =
    "train --from hub/a-model data.path=set train.sequence_length=32 train.global_batch=4 checkpoint.every=2 ";

TEST_F(From, TrainsTheModelOfAFolder) {
  const std::string begun = must(str_cat(kTrainFromHub, "train.steps=4"));
  EXPECT_THAT(begun, AllOf(HasSubstr("imported "), HasSubstr("runs/a-model.import"), HasSubstr("with its tokenizer")));
  ASSERT_EQ(run_.metric("runs/a-model", "loss").size(), 4u);
  EXPECT_LT(run_.metric("runs/a-model", "loss")[0], run_.metric("first", "loss")[0]) << "its weights have learnt";
  // The same command again goes on, and imports nothing.
  const std::string again = must(str_cat(kTrainFromHub, "train.steps=6"));
  EXPECT_THAT(again, AllOf(Not(HasSubstr("imported ")), HasSubstr("step-00000004 at step 4")));
  EXPECT_EQ(run_.metric("runs/a-model", "loss").size(), 6u);
  // What imports by hand trains the same.
  must("import hub/a-model by-hand");
  must(
      "train by-hand/config.toml run.dir=other data.path=set train.sequence_length=32 train.global_batch=4 "
      "checkpoint.every=2 train.steps=4");
  EXPECT_EQ(run_.metric("other", "loss")[0], run_.metric("runs/a-model", "loss")[0]);
}

TEST_F(From, ManyRanksImportOnce) {
  const std::string out = must(str_cat("launch -np 2 ", kTrainFromHub, "train.steps=2 run.dir=two/"));
  EXPECT_EQ(out.find("imported "), out.rfind("imported ")) << out;
  EXPECT_TRUE(fs::exists(run_.dir() / "two.import/manifest.json"));
  EXPECT_EQ(run_.metric("two", "loss").size(), 2u);
}

TEST_F(From, WhatIsNotTheSameModelIsSaid) {
  must(str_cat(kTrainFromHub, "train.steps=2 run.dir=run"));
  const auto refused = [&](const std::string& words, const std::string& what) {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 2) << words << "\n" << r.out;
    EXPECT_THAT(r.err, HasSubstr(what)) << words;
  };
  must("export first hub/same-model");
  must("train tiny.toml train.steps=7 run.dir=second dropout.resid=0 dropout.attn=0");
  must("export second hub/other-model");
  const std::string rest = " data.path=set train.sequence_length=32 train.global_batch=4 train.steps=2 run.dir=run";
  must("train --from hub/same-model" + rest);  // told by its content
  refused("train --from hub/other-model" + rest,
          "run.import: expected a complete import of hub/other-model, got the import of another model");
  run_.write("hub/broken/config.json", "{}");
  refused("train --from hub/broken data.path=set run.dir=none", "hub/broken");
  EXPECT_FALSE(fs::exists(run_.dir() / "none.import"));
  refused("train --from hub/a-model tiny.toml data.path=set", "expected no configuration file with --from");
  refused("train --from", "--from");
}

TEST_F(From, AKeyThatIsNotKnownCanBeVouchedFor) {
  std::string config = run_.read("hub/a-model/config.json");
  config.insert(config.find('{') + 1, "\"mystery\": 1,");
  run_.write("hub/a-model/config.json", config);
  const std::string words = str_cat(kTrainFromHub, "train.steps=2 ");
  const ShellResult refused = run_.ashlar(words);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("add --ignore-key mystery"));
  must(words + "--ignore-key mystery");
  const ShellResult alone = run_.ashlar("train tiny.toml --ignore-key mystery");
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("expected only with --from HF_DIR"));
}

}  // namespace
}  // namespace ashlar::testing
