#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launch/config/explain.h"
#include "parallel/model/parameter_count.h"
#include "tests/config/fixture.h"

namespace ashlar::config::testing {
namespace {

/// Overrides that move every supported key off its default, in a few consistent settings.
const std::vector<std::vector<std::string>>& settings() {
  static const std::vector<std::vector<std::string>> list = {
      {},
      {"run.dir=a \"quoted\" \\ dir",
       "run.seed=7",
       "run.init_from=other",
       "run.init_change=[\"rope.base\", \"norm.eps\"]",
       "data.allow_change=true",
       "run.dtype=fp64",
       "run.threads=5",
       "model.n_kv_heads=2",
       "model.head_dim=16",
       "model.d_ff=100",
       "vocab.size=70",
       "vocab.pad_to=64",
       "norm.type=layernorm",
       "norm.affine=scale_bias",
       "norm.eps=1e-6",
       "block.topology=parallel",
       "block.parallel_norms=2",
       "bias.qkv=true",
       "bias.attn_out=true",
       "bias.ffn=true",
       "bias.lm_head=true",
       "ffn.act=gelu_tanh",
       "ffn.gated=false",
       "rope.base=500000.5",
       "rope.fraction=0.5",
       "rope.style=interleaved",
       "attn.scale=0.3",
       "dropout.embed=0.1",
       "dropout.attn=0.2",
       "dropout.resid=0.3",
       "head.tie=true",
       "loss.z_coef=1e-4",
       "init.scheme=normal",
       "init.std=0.006",
       "init.residual_scale=0.7"},
      {"mesh.sequence_parallel=true",
       "mesh.schedule=interleaved",
       "mesh.virtual_stages=2",
       "train.micro_batch=3",
       "train.recompute=selective",
       "train.attention=own",
       "train.eval_every=0",
       "train.eval_sequences=0",
       "optimizer.kind=adamw",
       "optimizer.beta1=0.8",
       "optimizer.beta2=0.99",
       "optimizer.eps=1e-12",
       "optimizer.weight_decay=0",
       "optimizer.decay_embeddings=false",
       "optimizer.clip=0",
       "schedule.kind=wsd",
       "schedule.warmup_steps=10",
       "schedule.min_ratio=0",
       "schedule.decay_steps=300",
       "data.path=[{path='a', weight=0.1}, {path='b', weight=3}]",
       "data.document_mask=true",
       "data.restart_positions=true",
       "checkpoint.every=0",
       "checkpoint.keep=1",
       "log.every=10",
       "log.stats_every=100"},
      {"pos.type=learned", "pos.max_positions=100", "schedule.kind=constant", "optimizer.kind=lion"},
      {"pos.type=none", "schedule.kind=inv_sqrt", "norm.affine=none", "attn.scale=1/head_dim", "ffn.act=relu"},
      {"schedule.kind=linear", "init.scheme=kaiming", "ffn.act=gelu_erf", "data.path=[{path='a', weight=2}]"}};
  return list;
}

TEST(RoundTrip, WrittenConfigReadsBackEqual) {
  for (const auto& overrides : settings()) {
    const RunConfig c = resolved(overrides).config;
    const std::string text = to_toml(c);
    // No facts this time: everything stands in the file.
    const Resolved again = resolve(parse_config(text, "elsewhere.toml", {}), {.hardware_threads = 64});
    EXPECT_EQ(again.config, c) << text;
    EXPECT_EQ(to_toml(again.config), text);
    EXPECT_TRUE(again.derived.empty()) << again.derived.front().key;
    EXPECT_EQ(config_hash(again.config), config_hash(c));
    EXPECT_EQ(stored_config(model_to_toml(c.model), "model.toml").model, c.model);
    EXPECT_TRUE(compare_configs(c, again.config).empty());
  }
}

TEST(RoundTrip, ModelAloneNeedsNoTraining) {
  const std::string text = "[model]\nd_model = 64\nn_layers = 2\nn_heads = 4\n[vocab]\nsize = 97\n";
  const Resolved r = resolve(parse_config(text, "m.toml", {}), {.purpose = Purpose::kModel});
  EXPECT_EQ(r.config.train.steps, 0);
  EXPECT_EQ(r.config.model.vocab_size, 97);
  const Resolved again = resolve(parse_config(to_toml(r.config), "m.toml", {}), {.purpose = Purpose::kModel});
  EXPECT_EQ(again.config, r.config);
  EXPECT_THROW(stored_config("[model]\nd_model = 64\n", "m.toml"), ConfigError);
}

TEST(Hash, EveryKeyButThreadsCounts) {
  const RunConfig base = resolved({}).config;
  for (const char* change : {"run.seed=2", "model.d_ff=96", "norm.eps=2e-5", "data.path=other", "log.every=2",
                             "optimizer.lr=1.0000001e-3", "train.micro_batch=6"})
    EXPECT_NE(config_hash(resolved({change}).config), config_hash(base)) << change;
  EXPECT_EQ(config_hash(resolved({"run.threads=9"}).config), config_hash(base));
  // Fixed by value: ranks of different builds must agree.
  RunConfig plain;
  plain.run.dir = "x";
  EXPECT_EQ(config_hash(plain), config_hash(RunConfig(plain)));
}

TEST(Resume, FixedKeysAreNamedWithBothValues) {
  const RunConfig stored = resolved({}).config;
  const RunConfig changed =
      resolved({"run.seed=2", "model.n_layers=5", "norm.eps=1e-6", "train.steps=2000", "log.every=5"}).config;
  try {
    check_resume(stored, changed);
    FAIL();
  } catch (const ConfigError& e) {
    const auto has = [&](const std::string& start, const std::string& part) {
      return std::any_of(e.errors().begin(), e.errors().end(), [&](const std::string& s) {
        return s.rfind(start, 0) == 0 && s.find(part) != std::string::npos;
      });
    };
    EXPECT_TRUE(has("run.seed = 2", "expected 1,"));
    EXPECT_TRUE(has("model.n_layers = 5", "expected 4,"));
    EXPECT_TRUE(has("norm.eps = 1e-06", "expected 1e-05,"));
    EXPECT_TRUE(has("init.residual_scale", ""));
    EXPECT_EQ(e.errors().size(), 4U);
  }
}

// Betas and eps differ too, which follows from the kind and is no error of its own.
TEST(Resume, AnotherOptimizerIsOneError) {
  try {
    check_resume(resolved({}).config, resolved({"optimizer.kind=lion"}).config);
    FAIL();
  } catch (const ConfigError& e) {
    expect_one(e.errors(), "optimizer.kind = \"lion\"", "expected \"adamw\"");
  }
}

/// Keys that exist only because of a key that may not change add no errors.
TEST(Resume, AKeyThatAppearsWithAFixedOneIsNoErrorOfItsOwn) {
  const auto errors = [](const std::vector<std::string>& before, const std::vector<std::string>& after) {
    try {
      check_resume(resolved(before).config, resolved(after).config);
    } catch (const ConfigError& e) {
      return e.errors();
    }
    return std::vector<std::string>();
  };
  const std::vector<std::string> biased = {"moe.experts=4", "moe.selection_bias=true"};
  expect_one(errors({"moe.experts=4"}, biased), "moe.selection_bias = true", "expected false");
  expect_one(errors(biased, {"moe.experts=4"}), "moe.selection_bias = false", "expected true");
  expect_one(errors({}, {"moe.experts=4", "moe.groups=2"}), "moe.experts = 4", "expected 0");
  EXPECT_EQ(errors({"pos.type=rope"}, {"pos.type=alibi", "model.n_layers=5", "init.residual_scale=0.5"}).size(), 3U)
      << "what appears with pos.type alone";
}

/// What balances experts is no part of the model. The selection bias itself is.
TEST(Resume, WhatBalancesExpertsMayChange) {
  const std::vector<std::string> biased = {"moe.experts=4", "moe.selection_bias=true"};
  std::vector<std::string> changed = biased;
  for (const char* word :
       {"moe.bias_rate=0", "moe.balance=previous", "moe.balance_coef=0.5", "moe.z_coef=1e-3", "moe.tensor=experts"})
    changed.emplace_back(word);
  std::vector<std::string> keys;
  for (const ConfigChange& change : check_resume(resolved(biased).config, resolved(changed).config))
    keys.push_back(change.key);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"moe.tensor", "moe.bias_rate", "moe.balance", "moe.balance_coef", "moe.z_coef"}));
}

TEST(Resume, FreeKeysMayChangeAndAreReturned) {
  const RunConfig stored = resolved({}).config;
  EXPECT_TRUE(check_resume(stored, stored).empty());
  const auto changes = check_resume(stored, resolved({"train.steps=2000", "log.every=5"}).config);
  const auto has = [&](const std::string& key, const std::string& before, const std::string& after) {
    return std::any_of(changes.begin(), changes.end(), [&](const ConfigChange& c) {
      return c.key == key && c.before == before && c.after == after && !c.fixed;
    });
  };
  EXPECT_TRUE(has("train.steps", "1000", "2000"));
  EXPECT_TRUE(has("log.every", "1", "5"));
  EXPECT_TRUE(has("schedule.warmup_steps", "50", "100"));
  EXPECT_TRUE(has("schedule.decay_steps", "950", "1900"));
  EXPECT_EQ(changes.size(), 4U);
}

TEST(Resume, AppearingAndVanishingKeys) {
  const auto changes = compare_configs(resolved({}).config, resolved({"pos.type=learned", "run.init_from=a"}).config);
  const auto find = [&](const std::string& key) {
    return *std::find_if(changes.begin(), changes.end(), [&](const ConfigChange& c) { return c.key == key; });
  };
  EXPECT_EQ(find("rope.dims").after, "(none)");
  EXPECT_EQ(find("pos.max_positions").before, "(none)");
  EXPECT_EQ(find("run.init_from").after, "\"a\"");
  EXPECT_TRUE(find("pos.type").fixed);
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Configs, EveryFileLoads) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ASHLAR_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    const RawConfig raw = read_config(entry.path().string(), {});
    EXPECT_TRUE(raw.errors().empty()) << entry.path();
    const RunConfig c = resolve(raw, {.dataset_vocab_size = 65, .hardware_threads = 2}).config;
    EXPECT_EQ(c.run.dir, "runs/" + entry.path().stem().string());
    EXPECT_EQ(resolve(parse_config(to_toml(c), "x", {}), {}).config, c) << entry.path();
    EXPECT_NE(schema_markdown().find("`" + entry.path().filename().string() + "`"), std::string::npos)
        << entry.path() << ": add a line to schema_markdown in launch/config/explain.cpp";
  }
  EXPECT_GE(count, 3);
}

TEST(Configs, Gpt2IsTheModelOfThePaper) {
  RunConfig c = resolve(read_config(ASHLAR_SOURCE_DIR "/configs/gpt2-124m.toml", {}), {}).config;
  EXPECT_EQ(c.model.vocab_padded(), 50304);
  c.model.vocab_pad_to = 1;
  EXPECT_EQ(model::count_parameters(c.model).total(), 124439808);
}

TEST(Configs, ShakespeareIsNanoGptsExample) {
  const RunConfig c = resolve(read_config(ASHLAR_SOURCE_DIR "/configs/shakespeare-char.toml", {}), facts()).config;
  // nanoGPT counts 0.80 million parameters without its position table: 4 blocks of 12*128^2 and two gains each, a final
  // gain, 65 characters.
  EXPECT_EQ(model::count_parameters(c.model).total(), 4 * (12 * 128 * 128 + 2 * 128) + 128 + 65 * 128 + 64 * 128);
  EXPECT_EQ(c.schedule.warmup_steps + c.schedule.decay_steps, 2000);
  EXPECT_EQ(c.run.dtype, DType::kFloat32);
}

TEST(Configs, ReadmeIsWhatTheSchemaSays) {
  EXPECT_EQ(file_text(ASHLAR_SOURCE_DIR "/configs/README.md"), schema_markdown())
      << "regenerate: ashlar explain --markdown > configs/README.md";
}

}  // namespace
}  // namespace ashlar::config::testing
