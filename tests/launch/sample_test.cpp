// Text that a run generates at its validations (log.sample).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> samples(const RunFixture& run, const std::string& dir) {
  std::vector<std::string> texts;
  std::istringstream rows(run.read(dir + "/events.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.at("event") != "sample") continue;
    EXPECT_EQ(row.at("prompt"), "the wall");
    texts.push_back(row.at("text"));
  }
  return texts;
}

const std::string kSampleWords =
    "tiny.toml run.dtype=fp64 train.steps=8 train.eval_every=4 checkpoint.every=4 checkpoint.keep=9 vocab.pad_to=2 ";
const std::string kSample = "'log.sample=\"the wall\"' log.sample_tokens=20 ";

/// The text is that of `generate` from the checkpoint of the step, and nothing of the training changes by a bit.
TEST(Sample, IsThatOfGenerateAndChangesNothing) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train " + kSampleWords + "run.dir=without").code, 0);
  const ShellResult r = run.ashlar("train " + kSampleWords + kSample + "run.dir=with");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(run.exact_metrics("with"), run.exact_metrics("without"));
  const std::vector<std::string> texts = samples(run, "with");
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_THAT(r.out, HasSubstr("step 4  sample: "));
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_FALSE(texts[i].empty());
    const ShellResult generated = run.ashlar("generate with/checkpoints/step-0000000" + std::to_string(4 * i + 4) +
                                             " --prompt 'the wall' --tokens 20 --seed 3 | base64 -w0");
    run.write("text", "the wall" + texts[i] + "\n");
    // In JSON, bytes that are not UTF-8 are replacement characters.
    if (texts[i].find("\xef\xbf\xbd") != std::string::npos) continue;
    EXPECT_EQ(generated.out, run_shell("base64 -w0 '" + (run.dir() / "text").string() + "'").out) << i;
  }
}

TEST(Sample, IsTheSameOnAnyMesh) {
  const RunFixture run;
  const std::string words = kSampleWords + kSample + "dropout.resid=0 dropout.attn=0 ";
  ASSERT_EQ(run.ashlar("train " + words + "run.dir=one").code, 0);
  const std::vector<std::string> expected = samples(run, "one");
  int n = 0;
  for (const char* mesh : {"-np 2 train:mesh.tensor=2", "-np 2 train:mesh.data=2", "-np 2 train:mesh.pipeline=2",
                           "-np 4 train:mesh.pipeline=2 mesh.data=2", "-np 4 train:mesh.pipeline=2 mesh.tensor=2"}) {
    const std::string way = mesh, dir = "m" + std::to_string(++n);
    const size_t colon = way.find(':');
    const ShellResult r =
        run.ashlar("launch " + way.substr(0, colon) + " " + words + way.substr(colon + 1) + " run.dir=" + dir);
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(samples(run, dir), expected) << mesh;
  }
}

TEST(Sample, OfExpertsIsTheSameWhereverTheyLie) {
  const RunFixture run;
  const std::string words = kSampleWords + kSample + "dropout.resid=0 dropout.attn=0 moe.experts=4 moe.top_k=2 ";
  ASSERT_EQ(run.ashlar("train " + words + "run.dir=one").code, 0);
  const ShellResult r = run.ashlar("launch -np 2 train " + words + "mesh.expert=2 run.dir=two");
  ASSERT_EQ(r.code, 0) << r.err;
  ASSERT_FALSE(samples(run, "one").empty());
  EXPECT_EQ(samples(run, "two"), samples(run, "one"));
}

TEST(Sample, WhatCannotBeDoneIsAnError) {
  const RunFixture run;
  const ShellResult r = run.ashlar("launch -np 2 train " + kSampleWords + kSample +
                                   "mesh.tensor=2 mesh.sequence_parallel=true run.dir=s");
  EXPECT_EQ(r.code, kInput);
  EXPECT_THAT(r.err, HasSubstr("log.sample: expected mesh.sequence_parallel = false"));
  const ShellResult alone = run.ashlar("train " + kSampleWords + "log.sample_tokens=20 run.dir=s");
  EXPECT_EQ(alone.code, kInput);
  ASSERT_EQ(run.ashlar("data build text.txt --out letters --tokenizer characters").code, 0);
  const ShellResult foreign =
      run.ashlar("train " + kSampleWords + "data.path=letters 'log.sample=\"\u4e16\"' run.dir=s");
  EXPECT_EQ(foreign.code, kInput);
  EXPECT_THAT(foreign.err, HasSubstr("the characters tokenizer of the data cannot encode it"));
}

}  // namespace
}  // namespace ashlar::testing
