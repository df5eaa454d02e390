// A run that starts from a checkpoint has its model: what is left open is taken, what differs is named with both
// values.
#include <gmock/gmock.h>

#include "tests/config/fixture.h"

namespace ashlar::config::testing {
namespace {

using ::testing::HasSubstr;

// A configuration that says nothing of the model.
const char* const kOpen = R"(
[run]
init_from = "there"
[train]
steps = 10
sequence_length = 8
global_batch = 2
[optimizer]
lr = 1e-3
[data]
path = "data/x"
)";

model::ModelConfig stored_model(const std::vector<std::string>& overrides = {}) {
  return resolved(overrides).config.model;
}

struct Taken {
  std::vector<DerivedValue> values;
  std::vector<std::string> errors;
  std::optional<RunConfig> config;
};

Taken take(const model::ModelConfig& stored, const std::vector<std::string>& overrides,
           Differing differing = Differing::kError, const std::string& text = kOpen) {
  RawConfig raw = parse_config(text, "test.toml", overrides);
  Taken t;
  t.values = apply_checkpoint_model(raw, stored, "there/step-8", differing);
  try {
    t.config = resolve(raw, facts()).config;
  } catch (const ConfigError& e) {
    t.errors = e.errors();
  }
  return t;
}

TEST(TakeModel, EveryAxisOfAnyModelIsTakenAndTold) {
  const std::vector<std::vector<std::string>> models = {
      {},
      {"pos.type=learned", "pos.max_positions=100", "norm.type=layernorm", "norm.affine=none", "head.tie=true"},
      {"pos.type=none", "block.topology=parallel", "block.parallel_norms=2", "ffn.gated=false", "ffn.act=relu"},
      {"model.n_kv_heads=2", "model.head_dim=16", "rope.fraction=0.5", "rope.style=interleaved", "rope.base=5e5",
       "attn.scale=1/head_dim", "norm.eps=1e-6", "bias.qkv=true", "vocab.size=70"}};
  for (const auto& overrides : models) {
    const model::ModelConfig stored = stored_model(overrides);
    const Taken t = take(stored, {});
    ASSERT_TRUE(t.config) << ::testing::PrintToString(t.errors);
    model::ModelConfig got = t.config->model;
    got.init = stored.init;  // the run's own
    EXPECT_EQ(got, stored);
    EXPECT_GT(t.values.size(), 20U);
    for (const DerivedValue& v : t.values) EXPECT_EQ(v.rule, "from there/step-8");
  }
}

TEST(TakeModel, EveryKeyThatDiffersIsNamedWithBothValuesAtOnce) {
  const std::vector<std::string> different = {"model.d_model=64",       "model.n_layers=3",    "model.n_heads=2",
                                              "vocab.size=99",          "norm.type=layernorm", "norm.eps=0.1",
                                              "bias.qkv=true",          "ffn.act=relu",        "rope.base=500",
                                              "rope.style=interleaved", "attn.scale=0.5",      "head.tie=true"};
  const Taken t = take(stored_model(), different);
  EXPECT_EQ(t.errors.size(), different.size()) << ::testing::PrintToString(t.errors);
  for (const std::string& change : different) {
    const std::string key = change.substr(0, change.find('='));
    EXPECT_EQ(std::count_if(t.errors.begin(), t.errors.end(),
                            [&](const std::string& e) {
                              return e.rfind(key + " = ", 0) == 0 && e.find("the value in there/step-8;") != e.npos;
                            }),
              1)
        << key << ::testing::PrintToString(t.errors);
  }
  EXPECT_THAT(
      take(stored_model(), {"norm.eps=0.1"}).errors.at(0),
      HasSubstr("norm.eps = 0.1: expected 1e-05, the value in there/step-8; remove the key to use that value, or "
                "allow the change with run.init_change = [\"norm.eps\"]"));
}

TEST(TakeModel, OneDifferenceIsOneErrorWhateverFollowsFromIt) {
  expect_one(take(stored_model(), {"pos.type=learned"}).errors, "pos.type = ", "expected \"rope\"");
  expect_one(take(stored_model(), {"block.topology=parallel"}).errors, "block.topology", "\"serial\"");
  expect_one(take(stored_model(), {"ffn.multiple_of=64"}).errors, "model.d_ff = 384", "expected 512");
  expect_one(take(stored_model(), {"rope.fraction=0.5"}).errors, "rope.dims = 16", "expected 32");
}

TEST(TakeModel, EqualValuesSaidInOtherWordsAreEqual) {
  for (const char* same : {"attn.scale=head_dim^-0.5", "attn.scale=(d_model/n_heads)^-0.5", "model.d_ff=512",
                           "ffn.multiple_of=256", "rope.fraction=1.0", "model.head_dim=32", "vocab.size=65"})
    EXPECT_TRUE(take(stored_model(), {same}).errors.empty()) << same;
}

TEST(TakeModel, DropoutLossAndInitialValuesAreTheRunsOwn) {
  const Taken t = take(stored_model({"dropout.attn=0.5", "loss.z_coef=0.1", "init.std=1", "vocab.pad_to=64"}),
                       {"dropout.resid=0.25", "vocab.pad_to=2"});
  ASSERT_TRUE(t.config) << ::testing::PrintToString(t.errors);
  EXPECT_EQ(t.config->model.dropout, (model::DropoutConfig{.resid = 0.25}));
  EXPECT_EQ(t.config->model.loss.z_coef, 0);
  EXPECT_EQ(t.config->model.init.std, 0.02);
  EXPECT_EQ(t.config->model.vocab_pad_to, 2);
}

TEST(TakeModel, PermittedKeysMayDiffer) {
  const Taken t = take(stored_model(), {"rope.base=500", "norm.eps=0.1", "run.init_change=['rope.base', 'norm.eps']"});
  ASSERT_TRUE(t.config) << ::testing::PrintToString(t.errors);
  EXPECT_EQ(t.config->model.rope.base, 500);
  EXPECT_EQ(t.config->model.norm.variant.eps, 0.1);
  expect_one(take(stored_model(), {"rope.base=500", "norm.eps=0.1", "run.init_change=rope.base"}).errors, "norm.eps",
             "");
  const Taken none = take(stored_model(), {"pos.type=none", "run.init_change=pos.type"});
  ASSERT_TRUE(none.config) << ::testing::PrintToString(none.errors);
  EXPECT_EQ(none.config->model.rope, model::RopeConfig{});
  expect_one(errors_of({"run.init_change=rope.base"}), "run.init_change", "only when run.init_from is given");
}

TEST(TakeModel, AContinuedRunOnlyTakesWhatIsLeftOpen) {
  const Taken t = take(stored_model({"rope.base=500"}), {"norm.eps=0.1"}, Differing::kStays);
  ASSERT_TRUE(t.config) << ::testing::PrintToString(t.errors);
  EXPECT_EQ(t.config->model.rope.base, 500);
  EXPECT_EQ(t.config->model.norm.variant.eps, 0.1) << "check_resume is to name it";
}

}  // namespace
}  // namespace ashlar::config::testing
