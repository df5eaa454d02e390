// A dense model turned into one with experts: it computes the same, and trains on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/base/strings.h"
#include "parallel/checkpoint/reader.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Upcycle : public ::testing::Test {
 protected:
  std::string must(const std::string& words) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, 0) << words << "\n" << r.out << r.err;
    return r.out;
  }
  /// Trains a small model with the run directory `run`.
  void train(const std::string& run, const std::string& keys) const {
    must(str_cat("train tiny.toml train.steps=6 run.dir=", run, " dropout.resid=0 dropout.attn=0 ", keys));
  }
  /// The validation loss of a checkpoint.
  double loss(const std::string& checkpoint, const std::string& dtype) const {
    const std::string out =
        must(str_cat("eval ", checkpoint, " --data data --sequence-length 16 --batch 2 --sequences 8 --dtype ", dtype));
    const size_t at = out.find("val_loss ");
    EXPECT_NE(at, std::string::npos) << out;
    return at == std::string::npos ? NAN : std::strtod(out.c_str() + at + 9, nullptr);
  }
  /// The values of an fp64 tensor of a checkpoint.
  std::vector<double> tensor(const std::string& checkpoint, const char* name) const {
    checkpoint::CheckpointReader reader(run_.dir() / checkpoint);
    std::vector<double> values(static_cast<size_t>(reader.at(name).num_elems()));
    reader.read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }
  void expect_refused(const std::string& words, const std::string& what, int code = kInput) const {
    const ShellResult r = run_.ashlar(words);
    EXPECT_EQ(r.code, code) << words << "\n" << r.out << r.err;
    EXPECT_THAT(r.err, HasSubstr(what)) << words;
  }
  RunFixture run_;
};

/// The sum of k weights is 1 to a few roundings, and each of 3 layers multiplies by it.
TEST_F(Upcycle, TheLossStays) {
  constexpr const char* kKinds[] = {
      "moe.experts=4",
      "moe.experts=5 moe.top_k=3 moe.score=sigmoid moe.sum_eps=1e-20 moe.every=2",
      "moe.experts=6 moe.top_k=1 moe.dense_layers=[1] moe.router_bias=true moe.groups=3 moe.top_groups=2",
      "moe.experts=4 moe.top_k=4 moe.renormalize=false moe.selection_bias=true",
      "moe.experts=4 moe.router_norm=true moe.expert_scale=true",
  };
  constexpr const char* kModels[] = {"", "bias.ffn=true ffn.gated=false ffn.act=gelu_tanh",
                                     "block.topology=parallel head.tie=true norm.type=layernorm"};
  for (size_t m = 0; m < std::size(kModels); ++m) {
    const std::string dense = str_cat("dense", m);
    train(dense, str_cat("run.dtype=fp64 ", kModels[m]));
    for (size_t k = 0; k < std::size(kKinds); ++k) {
      if (testing::under_address_sanitizer() && (m + k) % 3 != 0) continue;
      SCOPED_TRACE(str_cat(kModels[m], " | ", kKinds[k]));
      const std::string out = str_cat("moe", m, "-", k);
      must(str_cat("upcycle ", dense, " ", out, " ", kKinds[k]));
      EXPECT_NEAR(loss(out, "fp64"), loss(dense, "fp64"), 1e-12);
      EXPECT_NEAR(loss(out, "fp32"), loss(dense, "fp32"), 2e-6);
    }
  }
}

TEST_F(Upcycle, TrainsOnFromTheLossOfTheDenseModel) {
  train("dense", "run.dtype=fp64");
  const std::string said = must("upcycle dense moe moe.experts=4 --seed 5");
  EXPECT_THAT(said, AllOf(HasSubstr("4 experts in each of 3 layers"), HasSubstr("to moe")));
  const std::string rest =
      " data.path=data run.dtype=fp64 run.seed=3 train.sequence_length=16 train.global_batch=4 train.steps=2 "
      "dropout.resid=0 "
      "dropout.attn=0 train.eval_every=1 train.eval_sequences=6 optimizer.lr=1e-12 schedule.warmup_steps=1";
  must("train moe/config.toml run.dir=a" + rest);
  must("train tiny.toml run.init_from=dense run.dir=b" + rest);
  ASSERT_EQ(run_.metric("a", "loss").size(), 2u);
  ASSERT_EQ(run_.metric("b", "loss").size(), 2u);
  EXPECT_NEAR(run_.metric("a", "loss")[0], run_.metric("b", "loss")[0], 1e-12) << "the first step's loss";
  EXPECT_GT(run_.metric("a", "moe_balance")[0], 0.9);
  // The router's weights are those of a training with the same seed, up to its first step.
  must(
      "train tiny.toml moe.experts=4 run.dtype=fp64 run.seed=5 run.dir=fresh train.steps=1 optimizer.lr=1e-12 "
      "schedule.warmup_steps=0 dropout.resid=0 dropout.attn=0");
  for (const char* name : {"blocks.0.moe.router.weight", "blocks.2.moe.router.weight"}) {
    const std::vector<double> made = tensor("moe", name);
    const std::vector<double> drawn = tensor("fresh/checkpoints/step-00000001", name);
    ASSERT_EQ(made.size(), 64u);
    for (size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], drawn[i], 1e-11) << name << " " << i;
  }
  EXPECT_NE(run_.read("moe/config.toml").find("balance = \"sequence\""), std::string::npos);
  // Experts in a run that starts from a dense checkpoint: the error says how.
  expect_refused("train tiny.toml run.init_from=dense run.dir=c moe.experts=4", "ashlar upcycle");
}

TEST_F(Upcycle, OfAHuggingFaceFolderAndBack) {
  train("dense", "");
  must("export dense hub/dense");
  must("upcycle hub/dense moe moe.experts=4 moe.top_k=2");
  EXPECT_NEAR(loss("moe", "fp32"), loss("dense", "fp32"), 2e-6);
  EXPECT_THAT(run_.read("moe/config.toml"), HasSubstr("--tokenizer"));
  EXPECT_THAT(must("export moe hub/moe"), HasSubstr("exported MixtralForCausalLM"));
  must("import hub/moe back");
  EXPECT_NEAR(loss("back", "fp32"), loss("dense", "fp32"), 2e-6);
}

TEST_F(Upcycle, WhatWouldNotComputeTheSameIsRefused) {
  train("dense", "");
  const auto refused = [&](const std::string& keys, const std::string& what) {
    expect_refused(str_cat("upcycle dense out ", keys), what);
    EXPECT_FALSE(fs::exists(run_.dir() / "out")) << keys;
  };
  refused("", "moe.experts: expected the number of experts");
  refused("moe.experts=4 moe.d_ff=12", "moe.d_ff = 12: expected model.d_ff = 24");
  refused("moe.experts=4 moe.shared_d_ff=8", "moe.shared_d_ff = 8: expected 0");
  refused("moe.experts=4 moe.beside_ffn=true", "moe.beside_ffn = true: expected false");
  refused("moe.experts=4 moe.renormalize=false", "moe.renormalize = false: expected true, since the weights");
  refused("moe.experts=4 moe.score=sigmoid moe.top_k=4 moe.renormalize=false", "moe.renormalize = false");
  refused("moe.experts=4 moe.scale=2.5", "moe.scale = 2.5: expected 1");
  refused("moe.experts=4 moe.scale_input=true", "moe.scale_input = true");
  refused("moe.experts=4 moe.sum_floor=0.5", "moe.sum_floor = 0.5");
  refused("moe.experts=4 moe.sum_eps=0.1", "moe.sum_eps = 0.1");
  refused("moe.experts=4 moe.top_k=5", "moe.top_k = 5: expected 1 to moe.experts = 4");
  refused("moe.experts=4 model.d_ff=12", "model.d_ff=12': expected only keys of the section moe");
  refused("moe.expert=4", "did you mean moe.experts");
  must("upcycle dense moe moe.experts=4");
  expect_refused("upcycle moe again moe.experts=8", "expected a dense model, got one with moe.experts = 4");
  expect_refused("upcycle dense moe moe.experts=4", "moe");
  expect_refused("upcycle nothing out moe.experts=4", "nothing: expected a checkpoint");
  expect_refused("upcycle text.txt out moe.experts=4", "text.txt");
  expect_refused("upcycle dense moe.experts=4", "expected a dense model and a checkpoint to write");
}

}  // namespace
}  // namespace ashlar::testing
