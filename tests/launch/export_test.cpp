// Export of what training makes: the same numbers come back.
#include <gtest/gtest.h>

#include "launch/training/decoder.h"
#include "launch/training/model_loading.h"
#include "parallel/comm/bootstrap.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::testing {
namespace {

constexpr int kInput = 2;

std::vector<double> logits_of(const std::filesystem::path& checkpoint) {
  comm::Bootstrap alone;
  Log log([](std::string_view) {});
  const training::LoadedModel m =
      training::load_model({.path = checkpoint, .dtype = "fp32", .threads = 1, .positions = 16}, alone, log);
  training::Decoder decoder(*m.engine, 16, false);
  const int32_t text[] = {3, 14, 15, 9, 2, 6, 5, 3, 5, 8};
  return decoder.next_logits(text);
}

// nanoGPT's model has no biases and GPT-2 has: zeros are the same model, to the bit.
TEST(Export, AModelWithoutBiasesIsAGpt2WithZeros) {
  const RunFixture run;
  const std::string model =
      "train " ASHLAR_SOURCE_DIR
      "/configs/shakespeare-char.toml data.path=data run.threads=1 model.d_model=32 "
      "model.n_layers=2 model.n_heads=2 model.d_ff=64 train.sequence_length=16 train.global_batch=4 train.steps=8 "
      "schedule.warmup_steps=2 train.eval_batches=2 init.std=0.2 run.dir=";
  for (const char* affine : {"scale", "none"}) {
    SCOPED_TRACE(affine);
    const std::string dir = affine;
    ASSERT_EQ(run.ashlar(model + dir + " norm.affine=" + affine).code, 0);
    const ShellResult exported = run.ashlar("export " + dir + " hf-" + dir);
    ASSERT_EQ(exported.code, 0) << exported.err;
    EXPECT_NE(exported.out.find("exported GPT2LMHeadModel"), std::string::npos) << exported.out;
    EXPECT_NE(exported.out.find("written as zeros"), std::string::npos) << exported.out;
    const ShellResult imported = run.ashlar("import hf-" + dir + " back-" + dir);
    ASSERT_EQ(imported.code, 0) << imported.err;
    const std::vector<double> before = logits_of(run.dir() / dir), after = logits_of(run.dir() / ("back-" + dir));
    ASSERT_GE(before.size(), 257U);
    EXPECT_NE(before[0], before[1]);
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i], after[i]) << i;
  }
}

TEST(Export, TheLongestContextOfALearnedTableIsItsRows) {
  const RunFixture run;
  ASSERT_EQ(run.ashlar("train tiny.toml train.steps=6 run.dir=r pos.type=learned norm.type=layernorm ffn.gated=false "
                       "ffn.act=gelu_tanh dropout.resid=0 dropout.attn=0")
                .code,
            0);
  const ShellResult r = run.ashlar("export r hf --max-positions 2048");
  EXPECT_EQ(r.code, kInput) << r.out;
  EXPECT_NE(r.err.find("--max-positions 2048: the model has a learned table of 16 positions"), std::string::npos)
      << r.err;
  EXPECT_FALSE(std::filesystem::exists(run.dir() / "hf/config.json"));
  EXPECT_EQ(run.ashlar("export r hf --max-positions 16").code, 0);
}

}  // namespace
}  // namespace ashlar::testing
