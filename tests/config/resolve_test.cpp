#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/optim/update_rule.h"
#include "launch/config/raw_values.h"
#include "tests/config/fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::config::testing {
namespace {

TEST(Resolve, EightKeysMakeTheConsensusRecipe) {
  const Resolved r = resolved({});
  const RunConfig& c = r.config;
  EXPECT_EQ(c.run.dir, "runs/test");
  EXPECT_EQ(c.run.dtype, DType::kBFloat16);
  EXPECT_EQ(c.run.threads, 2);
  EXPECT_FALSE(c.run.init_from.has_value());
  EXPECT_EQ(c.model.n_kv_heads, 4);
  EXPECT_EQ(c.model.head_dim, 32);
  EXPECT_EQ(c.model.d_ff, 512);  // 341.3 rounded up to a multiple of 256
  EXPECT_EQ(c.model.vocab_size, 65);
  EXPECT_EQ(c.model.vocab_padded(), 65);
  EXPECT_EQ(c.model.norm.variant.type, NormType::kRmsNorm);
  EXPECT_EQ(c.model.norm.affine, model::NormAffine::kScale);
  EXPECT_EQ(c.model.norm.variant.eps, 1e-5);
  EXPECT_EQ(c.model.ffn.act, Activation::kSilu);
  EXPECT_TRUE(c.model.ffn.gated);
  EXPECT_EQ(c.model.bias, model::BiasConfig{});
  EXPECT_EQ(c.model.pos.type, model::PosType::kRope);
  EXPECT_EQ(c.model.pos.max_positions, 0);
  EXPECT_EQ(c.model.rope.base, 10000.0);
  EXPECT_EQ(c.model.rope.dims, 32);
  EXPECT_EQ(c.model.rope.style, RopeStyle::kHalf);
  EXPECT_DOUBLE_EQ(c.model.attn.scale, 1 / std::sqrt(32.0));
  EXPECT_FALSE(c.model.tied);
  EXPECT_EQ(c.model.dropout, model::DropoutConfig{});
  EXPECT_EQ(c.model.init.scheme, model::InitScheme::kGpt2);
  EXPECT_EQ(c.model.init.std, 0.02);
  EXPECT_DOUBLE_EQ(c.model.init.residual_scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(c.train.micro_batch, 12);
  EXPECT_EQ(c.optimizer.rule.beta1, 0.9);
  EXPECT_EQ(c.optimizer.rule.beta2, 0.95);
  EXPECT_EQ(c.optimizer.rule.eps, 1e-8);
  EXPECT_EQ(c.optimizer.rule.weight_decay, 0.1);
  EXPECT_EQ(c.optimizer.clip, 1.0);
  EXPECT_EQ(c.schedule.kind, LrScheduleKind::kCosine);
  EXPECT_EQ(c.schedule.warmup_steps, 50);
  EXPECT_EQ(c.schedule.decay_steps, 950);
  EXPECT_EQ(c.schedule.min_ratio, 0.1);
  EXPECT_EQ(c.data.sources, (std::vector<DataSource>{{"data/x", 1.0}}));

  const auto required = std::count_if(schema().begin(), schema().end(), [](const KeySpec& s) {
    return s.need == Need::kModel || s.need == Need::kTrain;
  });
  EXPECT_LE(required, 12);
}

TEST(Resolve, DerivedValuesCarryTheirRule) {
  const Resolved r = resolved({"model.d_model=4096", "model.n_heads=32"});
  EXPECT_EQ(derived_line(r, "model.d_ff"), "model.d_ff = 11008 (8/3 d_model rounded up to 256)");
  EXPECT_EQ(derived_line(r, "model.head_dim"), "model.head_dim = 128 (model.d_model / model.n_heads)");
  EXPECT_EQ(derived_line(r, "vocab.size"), "vocab.size = 65 (the vocabulary of the dataset)");
  EXPECT_EQ(derived_line(r, "run.threads"), "run.threads = 2 (2 cores / 1 rank)");
  EXPECT_EQ(derived_line(resolved({"model.d_ff=100"}), "model.d_ff"), "");
  EXPECT_EQ(derived_line(resolved({"ffn.gated=false"}), "model.d_ff"), "model.d_ff = 512 (4 d_model)");
  EXPECT_EQ(resolved({"ffn.multiple_of=1"}).config.model.d_ff, 342);
  const Resolved learned = resolved({"pos.type=learned"});
  EXPECT_EQ(derived_line(learned, "pos.max_positions"), "pos.max_positions = 64 (train.sequence_length)");
  EXPECT_EQ(learned.config.model.rope.dims, 0);
}

TEST(Resolve, AttentionScaleRules) {
  const auto scale = [](const std::string& value) {
    return resolved({"model.head_dim=64", "attn.scale=" + value}).config.model.attn.scale;
  };
  EXPECT_DOUBLE_EQ(scale("head_dim^-0.5"), 0.125);
  EXPECT_DOUBLE_EQ(scale("1/head_dim"), 1.0 / 64);
  EXPECT_DOUBLE_EQ(scale("(d_model/n_heads)^-0.5"), 1 / std::sqrt(32.0));
  EXPECT_DOUBLE_EQ(scale("1"), 1.0);
}

TEST(Resolve, InitResidualScale) {
  EXPECT_EQ(resolved({"init.scheme=normal"}).config.model.init.residual_scale, 1.0);
  EXPECT_EQ(resolved({"init.residual_scale=0.5"}).config.model.init.residual_scale, 0.5);
  EXPECT_DOUBLE_EQ(
      resolved({"init.scheme=xavier", "init.residual_scale=1/sqrt(2*n_layers)"}).config.model.init.residual_scale,
      1 / std::sqrt(8.0));
}

TEST(Resolve, InitOfTablesAndItsCut) {
  const auto init = [](const std::vector<std::string>& keys) { return resolved(keys).config.model.init; };
  EXPECT_EQ(init({}).std, 0.02);
  EXPECT_EQ(init({}).trunc_sigma, std::nullopt);
  EXPECT_DOUBLE_EQ(init({"init.scheme=small_wang"}).std, std::sqrt(2.0 / (5 * 128)));
  EXPECT_DOUBLE_EQ(init({"init.scheme=mitchell"}).std, 1 / std::sqrt(128.0));
  EXPECT_EQ(init({"init.scheme=mitchell"}).trunc_sigma, 3.0);
  EXPECT_EQ(init({"init.scheme=mitchell", "init.trunc_sigma=none"}).trunc_sigma, std::nullopt);
  for (const std::string scheme : {"fan_in", "t5"}) {
    EXPECT_EQ(init({"init.scheme=" + scheme}).std, 1.0);
    EXPECT_EQ(init({"init.scheme=" + scheme, "init.std=0.5"}).std, 0.5);
    EXPECT_EQ(init({"init.scheme=" + scheme}).residual_scale, 1.0);
  }
  EXPECT_EQ(init({"init.trunc_sigma=2.5"}).trunc_sigma, 2.5);
  EXPECT_EQ(derived_line(resolved({"init.scheme=t5"}), "init.std"), "init.std = 1.0 (tables with init.scheme t5)");
  expect_one(errors_of({"init.trunc_sigma=0.4"}), "init.trunc_sigma = 0.4", "0.5");
}

TEST(Resolve, RopeFractionBecomesDims) {
  EXPECT_EQ(resolved({"rope.fraction=0.25"}).config.model.rope.dims, 8);
  EXPECT_EQ(resolved({"rope.dims=12"}).config.model.rope.dims, 12);
  expect_one(errors_of({"rope.fraction=0.1"}), "rope.dims = 3", "even");
  expect_one(errors_of({"rope.fraction=0.01"}), "rope.dims = 0", "even");
  expect_one(errors_of({"rope.dims=34"}), "rope.dims = 34", "model.head_dim = 32");
  expect_one(errors_of({"rope.dims=8", "rope.fraction=0.25"}), "rope.fraction = 0.25", "rope.dims is not given");
}

// What a rule says of its numbers in core/optim is what a run gets and a reader is told.
TEST(Resolve, NumbersOfTheOptimizerAreThoseOfItsRule) {
  for (const auto& [kind, name] : optim::names_of(optim::OptimizerKind{})) {
    const Resolved r = resolved({str_cat("optimizer.kind=", name)});
    optim::OptimizerOptions expected = optim::rule_of(kind).defaults;
    EXPECT_EQ(expected.kind, kind);
    const bool has_eps = expected.eps > 0;
    EXPECT_EQ(to_toml(r.config).find("\neps = ", to_toml(r.config).find("[optimizer]")) != std::string::npos, has_eps);
    if (!has_eps) expected.eps = r.config.optimizer.rule.eps;
    EXPECT_EQ(r.config.optimizer.rule, expected) << name;
    EXPECT_EQ(derived_line(r, "optimizer.beta2"),
              str_cat("optimizer.beta2 = ", value_text(expected.beta2), " (optimizer.kind ", name, ")"));
  }
  EXPECT_EQ(default_text(schema()[key_index("optimizer.beta2")]), "depends on optimizer.kind: adamw 0.95, lion 0.99");
  EXPECT_EQ(default_text(schema()[key_index("optimizer.eps")]), "depends on optimizer.kind: adamw 1e-08");
  EXPECT_EQ(derived_line(resolved({"optimizer.kind=lion", "optimizer.beta2=0.5"}), "optimizer.beta2"), "");
  expect_one(errors_of({"optimizer.kind=lion", "optimizer.eps=1e-8"}), "optimizer.eps = 1e-08",
             "only when optimizer.kind = \"adamw\"");
  expect_one(errors_of({"optimizer.kind=lion", "optimizer.beta2=0.99999999"}), "optimizer.beta2", "1 in fp32");
}

// Each key with a value of its own, so that none can stand for another.
TEST(Resolve, EveryKeyReachesItsField) {
  const RunConfig c = resolved({"run.seed=77",
                                "run.dtype=fp32",
                                "run.threads=3",
                                "train.steps=500",
                                "train.eval_every=41",
                                "train.eval_sequences=42",
                                "train.eval_tasks=[\"piqa\", \"copa\"]",
                                "train.eval_tasks_every=43",
                                "train.eval_tasks_limit=44",
                                "train.eval_tasks_data=there",
                                "train.recompute=selective",
                                "train.attention=own",
                                "optimizer.lr=0.5",
                                "optimizer.beta1=0.11",
                                "optimizer.beta2=0.12",
                                "optimizer.eps=0.13",
                                "optimizer.weight_decay=0.14",
                                "optimizer.decay_embeddings=false",
                                "optimizer.clip=0.15",
                                "schedule.kind=linear",
                                "schedule.warmup_steps=51",
                                "schedule.decay_steps=52",
                                "schedule.min_ratio=0.16",
                                "dropout.embed=0.21",
                                "dropout.attn=0.22",
                                "dropout.resid=0.23",
                                "checkpoint.every=61",
                                "checkpoint.keep=62",
                                "log.every=71",
                                "log.stats_every=72",
                                "log.trace_steps=[7, 9]",
                                "log.trace_every=73",
                                "head.tie=true",
                                "loss.z_coef=0.31",
                                "norm.eps=0.32",
                                "rope.base=333",
                                "rope.style=interleaved",
                                "init.std=0.34",
                                "init.scheme=normal",
                                "bias.qkv=true",
                                "bias.lm_head=true"})
                          .config;
  EXPECT_EQ(c.run.seed, 77);
  EXPECT_EQ(c.run.dtype, DType::kFloat32);
  EXPECT_EQ(c.run.threads, 3);
  EXPECT_EQ(c.train.steps, 500);
  EXPECT_EQ(c.train.eval_every, 41);
  EXPECT_EQ(c.train.eval_sequences, 42);
  EXPECT_EQ(c.train.eval_tasks, (std::vector<std::string>{"piqa", "copa"}));
  EXPECT_EQ(c.train.eval_tasks_every, 43);
  EXPECT_EQ(c.train.eval_tasks_limit, 44);
  EXPECT_EQ(c.train.eval_tasks_data, "there");
  EXPECT_EQ(c.train.recompute, Recompute::kSelective);
  EXPECT_EQ(c.train.attention, AttentionKernels::kOwn);
  EXPECT_EQ(c.optimizer.lr, 0.5);
  EXPECT_EQ(c.optimizer.rule.beta1, 0.11);
  EXPECT_EQ(c.optimizer.rule.beta2, 0.12);
  EXPECT_EQ(c.optimizer.rule.eps, 0.13);
  EXPECT_EQ(c.optimizer.rule.weight_decay, 0.14);
  EXPECT_FALSE(c.optimizer.rule.decay_embeddings);
  EXPECT_TRUE(resolved({}).config.optimizer.rule.decay_embeddings);
  EXPECT_EQ(c.optimizer.clip, 0.15);
  EXPECT_EQ(c.schedule.kind, LrScheduleKind::kLinear);
  EXPECT_EQ(c.schedule.warmup_steps, 51);
  EXPECT_EQ(c.schedule.decay_steps, 52);
  EXPECT_EQ(c.schedule.min_ratio, 0.16);
  EXPECT_EQ(c.model.dropout.embed, 0.21);
  EXPECT_EQ(c.model.dropout.attn, 0.22);
  EXPECT_EQ(c.model.dropout.resid, 0.23);
  EXPECT_EQ(c.checkpoint.every, 61);
  EXPECT_EQ(c.checkpoint.keep, 62);
  EXPECT_EQ(c.log.every, 71);
  EXPECT_EQ(c.log.stats_every, 72);
  EXPECT_EQ(c.log.trace_steps, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(c.log.trace_every, 73);
  EXPECT_TRUE(c.model.tied);
  EXPECT_FALSE(resolved({}).config.model.tied);
  EXPECT_EQ(c.model.loss.z_coef, 0.31);
  EXPECT_EQ(c.model.norm.variant.eps, 0.32);
  EXPECT_EQ(c.model.rope.base, 333);
  EXPECT_EQ(c.model.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(c.model.init.std, 0.34);
  EXPECT_EQ(c.model.init.residual_scale, 1) << "scaled by depth for gpt2 only";
  EXPECT_TRUE(c.model.bias.qkv && c.model.bias.lm_head);
  EXPECT_FALSE(c.model.bias.ffn || c.model.bias.attn_out);
}

TEST(Resolve, DerivedValuesFollowTheRanks) {
  Facts four = facts();
  four.ranks = four.local_ranks = 4;
  four.hardware_threads = 10;
  const auto with = [&](std::vector<std::string> overrides) {
    return resolve(parse_config(kMinimal, "test.toml", overrides), four).config;
  };
  EXPECT_EQ(with({}).run.threads, 2) << "10 cores, 4 ranks";
  EXPECT_EQ(with({"mesh.tensor=2", "vocab.pad_to=2"}).mesh.data, 2);
  EXPECT_EQ(with({}).train.micro_batch, 3) << "12 sequences, 4 replicas";
  four.hardware_threads = 3;
  EXPECT_EQ(with({}).run.threads, 1);
  expect_one(errors_of({"train.global_batch=13"}, kMinimal, four), "train.global_batch = 13", "multiple of mesh.data");
}

TEST(Resolve, SequenceParallelRowsAreDivided) {
  Facts two = facts();
  two.ranks = two.local_ranks = 2;
  const std::vector<std::string> good = {"mesh.tensor=2", "vocab.pad_to=2", "mesh.sequence_parallel=true",
                                         "train.micro_batch=3"};
  EXPECT_EQ(errors_of(good, kMinimal, two), std::vector<std::string>{});
  std::vector<std::string> odd = good;
  odd.push_back("train.sequence_length=63");
  expect_one(errors_of(odd, kMinimal, two), "mesh.sequence_parallel = true", "got 189");
}

TEST(Resolve, WarmUpIsATwentiethAndBounded) {
  EXPECT_EQ(resolved({"train.steps=1000"}).config.schedule.warmup_steps, 50);
  EXPECT_EQ(resolved({"train.steps=39999"}).config.schedule.warmup_steps, 1999);
  EXPECT_EQ(resolved({"train.steps=1000000"}).config.schedule.warmup_steps, 2000);
  EXPECT_EQ(resolved({"train.steps=10"}).config.schedule.warmup_steps, 0);
}

TEST(Resolve, CrossChecks) {
  expect_one(errors_of({"model.n_kv_heads=3"}), "model.n_kv_heads = 3", "divisor of model.n_heads = 4");
  expect_one(errors_of({"model.n_heads=3"}), "model.n_heads = 3", "128 / 3");
  expect_one(errors_of({"model.head_dim=513"}), "model.head_dim = 513", "1 to 512");
  for (const std::string key : {"rope.base=500", "rope.dims=8", "rope.style=half", "rope.fraction=0.5"})
    for (const char* pos : {"pos.type=none", "pos.type=learned"})
      expect_one(errors_of({key, pos}), key.substr(0, key.find('=')), "pos.type = \"rope\"");
  expect_one(errors_of({"pos.max_positions=64"}), "pos.max_positions = 64", "pos.type = \"learned\"");
  expect_one(errors_of({"pos.type=learned", "pos.max_positions=32"}), "train.sequence_length = 64", "32");
  expect_one(errors_of({"block.parallel_norms=2"}), "block.parallel_norms = 2", "block.topology = \"parallel\"");
  expect_one(errors_of({"ffn.multiple_of=64", "model.d_ff=256"}), "ffn.multiple_of = 64", "derived");
  expect_one(errors_of({"ffn.multiple_of=64", "ffn.gated=false"}), "ffn.multiple_of = 64", "ffn.gated = true");
  expect_one(errors_of({"schedule.warmup_steps=1001"}), "schedule.warmup_steps = 1001", "train.steps = 1000");
  expect_one(errors_of({"schedule.kind=constant", "schedule.min_ratio=0.2"}), "schedule.min_ratio", "not constant");
  expect_one(errors_of({"schedule.kind=inv_sqrt", "schedule.decay_steps=9"}), "schedule.decay_steps", "cosine");
  expect_one(errors_of({"schedule.kind=wsd", "schedule.decay_steps=951"}), "schedule.decay_steps = 951", "950");
  // After a warm-up of all steps, one step may still decay.
  expect_one(errors_of({"schedule.kind=wsd", "schedule.warmup_steps=1000", "schedule.decay_steps=2"}),
             "schedule.decay_steps = 2", "at most 1 (train.steps");
  expect_one(errors_of({"train.micro_batch=5"}), "train.micro_batch = 5",
             "divisor of train.global_batch / mesh.data = 12");
  expect_one(errors_of({"train.micro_batch=24"}), "train.micro_batch = 24",
             "divisor of train.global_batch / mesh.data = 12");
  expect_one(errors_of({"train.global_batch=1048576", "train.sequence_length=1048576"}), "train.micro_batch = 1048576",
             "2147483647 tokens, got 1048576 * 1048576");
  expect_one(errors_of({"vocab.size=64"}), "vocab.size = 64", "65, the number of ids of the dataset");
  expect_one(errors_of({"data.restart_positions=true"}), "data.restart_positions", "data.document_mask = true");
  expect_one(errors_of({"data.restart_positions=true", "data.document_mask=true", "pos.type=none"}),
             "data.restart_positions", "pos.type");
  expect_one(errors_of({"mesh.virtual_stages=2"}), "mesh.virtual_stages = 2", "interleaved");
  EXPECT_EQ(resolved({"model.embed_dim=64"}).config.model.embed_dim, 64);
  EXPECT_EQ(resolved({"model.embed_dim=128"}).config.model.embed_dim, std::nullopt) << "d_model: no projections";
  expect_one(errors_of({"pos.learned_offset=2"}), "pos.learned_offset = 2", "learned or sinusoidal");
  expect_one(errors_of({"ffn.gated=false", "ffn.clamp=20"}), "ffn.clamp = 20", "ffn.gated = false");
  expect_one(errors_of({"head.masked_ids=[5, 3]"}), "head.masked_ids = 3", "ascending");
  expect_one(errors_of({"head.masked_ids=[5, 65]"}), "head.masked_ids = 65", "from 0 to 64");
  expect_one(errors_of({"attn.temperature_beta=0.1"}), "attn.temperature_beta = 0.1", "attn.temperature_positions");
  expect_one(errors_of({"attn.temperature_positions=8"}), "attn.temperature_positions = 8",
             "attn.temperature_beta above 0 too, got 0");
  expect_one(errors_of({"attn.global_head_dim=7"}), "rope.global_dims = 7", "rope.dims * attn.global_head_dim");
  EXPECT_EQ(resolved({"schedule.kind=wsd"}).config.schedule.decay_steps, 200);
  EXPECT_EQ(resolved({"schedule.kind=constant"}).config.schedule.decay_steps, 0);
  EXPECT_EQ(resolved({"schedule.kind=inv_sqrt"}).config.schedule.min_ratio, 0.1);
}

// Where it was asked for. `auto` may be anything anywhere.
TEST(Resolve, AttentionOfCudnnNeedsADeviceAndACallThatItServes) {
  const auto errors = [](std::vector<std::string> overrides) {
    overrides.push_back("train.attention=cudnn");
    return errors_of(overrides);
  };
  expect_one(errors({}), "train.attention = \"cudnn\": expected run.device = \"cuda\", got \"cpu\"; choose",
             "\"auto\" or \"own\"");
  for (const auto& [change, words] :
       {std::pair("run.dtype=fp32", "expected bf16, got fp32; choose \"auto\" or \"own\""),
        std::pair("run.dtype=fp64", "expected bf16, got fp64"),
        std::pair("data.document_mask=true", "expected plain causal attention, got a document mask"),
        std::pair("dropout.attn=0.1", "expected plain causal attention, got dropout"),
        std::pair("model.head_dim=36", "multiple of 8"), std::pair("train.sequence_length=1", "at least 2 tokens")}) {
    expect_one(errors({change, "run.device=cuda"}), "train.attention = \"cudnn\": expected", words);
    EXPECT_EQ(errors({change}).size(), 2U) << "the device's, too";
    EXPECT_EQ(errors_of({change, "run.device=cuda", "train.attention=auto"}), std::vector<std::string>{});
  }
  EXPECT_EQ(errors({"run.device=cuda"}), std::vector<std::string>{});
  Facts model = facts();
  model.purpose = Purpose::kModel;  // of a run that is over
  EXPECT_EQ(errors_of({"train.attention=cudnn"}, kMinimal, model), std::vector<std::string>{});
}

TEST(Resolve, MeshNamesRanks) {
  for (const std::string key : {"mesh.tensor", "mesh.pipeline", "mesh.data"})
    expect_one(errors_of({key + "=2"}), key + " = 2", "number of ranks, 1;");
  Facts four = facts();
  four.ranks = four.local_ranks = 4;
  EXPECT_EQ(errors_of({"vocab.pad_to=2", "mesh.tensor=2", "mesh.pipeline=2"}, kMinimal, four),
            std::vector<std::string>{});
  expect_one(errors_of({"mesh.tensor=3"}, kMinimal, four), "mesh.tensor = 3", "number of ranks, 4");
  expect_one(errors_of({"mesh.tensor=2", "mesh.data=1", "vocab.pad_to=2"}, kMinimal, four), "mesh.data = 1",
             "2 * 1 * 1");
  EXPECT_EQ(resolve(parse_config(kMinimal, "test.toml", {}), four).config.mesh.data, 4);
}

TEST(Resolve, MeshFitsTheModel) {
  Facts eight = facts();
  eight.ranks = eight.local_ranks = 8;
  expect_one(errors_of({"mesh.tensor=8", "model.n_heads=4", "vocab.pad_to=8"}, kMinimal, eight), "mesh.tensor = 8",
             "choose from 1, 2, 4");
  expect_one(errors_of({"mesh.tensor=2", "mesh.pipeline=4"}, kMinimal, eight), "mesh.tensor = 2", "vocab.pad_to = 2");
  expect_one(errors_of({"mesh.pipeline=8"}, kMinimal, eight), "mesh.pipeline = 8", "model.n_layers = ");
}

TEST(Resolve, VocabularyWithoutADataset) {
  Facts none{.hardware_threads = 1};
  expect_one(errors_of({}, kMinimal, none), "vocab.size", "missing");
  EXPECT_EQ(errors_of({"vocab.size=100"}, kMinimal, none), std::vector<std::string>{});
  // A dataset that does not open is one error, not two.
  RawConfig raw = parse_config(kMinimal, "test.toml", {});
  EXPECT_EQ(raw.data_sources(), (std::vector<DataSource>{{"data/x", 1.0}}));
  raw.add_error("[data] data/x: expected a dataset, got nothing; build one");
  try {
    resolve(raw, none);
    FAIL();
  } catch (const ConfigError& e) {
    expect_one(e.errors(), "data.path: data/x", "expected a dataset");
    EXPECT_STREQ(e.what(), "[config] data.path: data/x: expected a dataset, got nothing; build one");
  }
}

TEST(Resolve, AScalingAsksForItsKeysAndDerivesItsFactor) {
  const auto errors = errors_of({"rope.scaling=yarn"});
  ASSERT_EQ(errors.size(), 2U) << ::testing::PrintToString(errors);
  EXPECT_EQ(errors[0].rfind("rope.factor: missing, expected a number from 1", 0), 0U) << errors[0];
  EXPECT_EQ(errors[1].rfind("rope.original_positions: missing", 0), 0U) << errors[1];
  expect_one(errors_of({"rope.factor=4"}), "rope.factor = 4",
             "only when rope.scaling is linear, llama3, yarn or longrope");
  expect_one(errors_of({"rope.scaling=longrope", "rope.factor=4", "rope.original_positions=64", "rope.dims=4",
                        "rope.short_factor=[1]", "rope.long_factor=[1, 2]"}),
             "rope.short_factor", "expected 2 numbers (rope.dims / 2, one per rotary pair)");
  const RunConfig yarn =
      resolve(parse_config(kMinimal, "test.toml", {"rope.scaling=yarn", "rope.factor=4", "rope.original_positions=64"}),
              facts())
          .config;
  EXPECT_NEAR(yarn.model.rope.attention_factor, 1.1386294361119891, 1e-15);
}

TEST(Resolve, AllErrorsAtOnce) {
  const std::string text = R"(
[model]
d_model = "wide"
n_layers =
n_heds = 4
[init]
scheme = "t6"
[train]
steps = 0
sequence_length = 64
global_batch = 12
micro_batch = 5
[optimiser]
lr = 1e-3
[pos]
type = "learned"
[rope]
base = 5
[data]
path = [{path = "a", weight = -1}, {wight = 2}, 3]
)";
  const auto errors = errors_of({"run.threads=none", "train.nonsense", "lr=3", "run.seed=-1"}, text);
  const auto has = [&](const std::string& start, const std::string& part) {
    EXPECT_EQ(std::count_if(
                  errors.begin(), errors.end(),
                  [&](const std::string& e) { return e.rfind(start, 0) == 0 && e.find(part) != std::string::npos; }),
              1)
        << start << " ... " << part;
  };
  has("model.d_model = 'wide': expected an integer from 1 to", "(test.toml:3)");
  has("model.n_layers = (empty): expected an integer from 1 to", "test.toml:4");
  has("model.n_heds: unknown key; did you mean model.n_heads?", "(test.toml:5)");
  has("init.scheme = \"t6\": expected one of", "(test.toml:7)");
  has("train.steps = 0: expected an integer from 1 to", "e.g. train.steps = 1000");
  has("train.micro_batch = 5: expected a divisor of train.global_batch / mesh.data = 12", "change");
  has("optimiser.lr: unknown key; did you mean optimizer.lr?", "");
  has("rope.base = 5", "only when pos.type = \"rope\"");
  has("data.path[0].weight = -1", "a number above 0");
  has("data.path[1].wight = 2", "only the keys path and weight");
  has("data.path[1] = ", "a key `path`");
  has("data.path[2] = 3", "{path = ");
  has("run.threads = 'none'", "(command line)");
  has("train.nonsense: expected section.key=value", "(command line)");
  has("lr: unknown key; did you mean optimizer.lr?", "(command line)");
  has("run.seed = -1", "from 0 to 4294967295");
  has("model.n_heads: missing", "e.g. model.n_heads = 8");
  has("optimizer.lr: missing", "");
  EXPECT_EQ(errors.size(), 18U) << ::testing::PrintToString(errors);
  try {
    resolve(parse_config(text, "test.toml", {}), facts());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    std::string all(e.what());
    EXPECT_EQ(all.rfind("[config] ", 0), 0U);
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 13);
    for (size_t i = 0; (i = all.find('\n', i)) != all.npos; ++i) EXPECT_EQ(all.substr(i + 1, 9), "[config] ");
  }
}

TEST(Resolve, OverridesWinAndUnset) {
  EXPECT_EQ(resolved({"train.steps=7", "train.steps=9"}).config.train.steps, 9);
  const std::string text = std::string(kMinimal) + "[schedule]\nmin_ratio = 0.5\n";
  EXPECT_EQ(resolved({}, text).config.schedule.min_ratio, 0.5);
  expect_one(errors_of({"schedule.kind=constant"}, text), "schedule.min_ratio = 0.5", "=default on the command line");
  EXPECT_EQ(resolved({"schedule.kind=constant", "schedule.min_ratio=default"}, text).config.schedule.min_ratio, 1.0);
  expect_one(errors_of({"model.d_model=default"}), "model.d_model: missing", "model.d_model = 512");
  EXPECT_EQ(resolved({"run.dir=/tmp/a b"}).config.run.dir, "/tmp/a b");
  EXPECT_EQ(resolved({"run.dir=\"a\\\"b\""}).config.run.dir, "a\"b");
  EXPECT_EQ(resolved({" optimizer.lr = 1 "}).config.optimizer.lr, 1.0);
  EXPECT_EQ(resolved({"data.path=[{path='a', weight=3}, {path='b'}]"}).config.data.sources,
            (std::vector<DataSource>{{"a", 3.0}, {"b", 1.0}}));
}

TEST(Resolve, NearestKey) {
  EXPECT_EQ(nearest_key("model", "dmodel"), "model.d_model");
  EXPECT_EQ(nearest_key("modl", "d_model"), "model.d_model");
  EXPECT_EQ(nearest_key("train", "lr"), "optimizer.lr");
  EXPECT_EQ(nearest_key("optimizer", "wd"), "optimizer.weight_decay");
  EXPECT_EQ(nearest_key("optim", "weight_decay"), "optimizer.weight_decay");
  EXPECT_EQ(nearest_key("data", "doc_mask"), "data.document_mask");
  EXPECT_EQ(nearest_key("", "warmup"), "schedule.warmup_steps");
  // What other programs call it, in whatever section it was looked for.
  for (const auto& [other, name] : other_names()) {
    EXPECT_NO_THROW(key_index(name)) << other;
    for (const KeySpec& spec : schema()) EXPECT_NE(spec.key, other) << "has that meaning here";
  }
  EXPECT_EQ(nearest_key("attn", "sliding_window"), "attn.window_cycle");
  EXPECT_EQ(nearest_key("model", "rope_theta"), "rope.base");
  EXPECT_EQ(nearest_key("ffn", "intermediate_size"), "model.d_ff");
  EXPECT_EQ(nearest_key("config", "hidden_size"), "model.d_model");
  EXPECT_EQ(nearest_key("norm", "epsilon"), "norm.eps");
  EXPECT_EQ(nearest_key("pos", "offset"), "pos.learned_offset");
  EXPECT_EQ(nearest_key("attn", "dropout"), "dropout.attn");
  EXPECT_EQ(nearest_key("head", "scale"), "head.logit_scale");
  EXPECT_EQ(nearest_key("", "head.scale"), "head.logit_scale");
  EXPECT_EQ(nearest_key("attn", "multiplier"), "");
  expect_one(errors_of({"attn.multiplier=0.1"}), "attn.multiplier: unknown key", "ashlar explain attn");
}

TEST(Resolve, BrokenFiles) {
  ::ashlar::testing::ScratchDir dir;
  EXPECT_THROW(read_config(dir.file("absent.toml"), {}), Error);
  EXPECT_THROW(read_config(dir.path().string(), {}), Error);
  std::ofstream(dir.file("empty.toml")).close();
  EXPECT_EQ(read_config(dir.file("empty.toml"), {}).errors().size(), 0U);
  expect_one(errors_of({}, std::string(kMinimal) + "what is this\n"), "what is this", "expected TOML");
  expect_one(errors_of({}, std::string(kMinimal) + "[weird]\n"), "[weird]", "unknown section");
  expect_one(errors_of({}, std::string(kMinimal) + "[train]\n"), "[train]", "");
  expect_one(errors_of({}, "run = 3\n" + std::string(kMinimal)), "run = 3", "expected a section");
  EXPECT_FALSE(errors_of({}, std::string("\x00\xff\xfe[model]\n", 12)).empty());
  EXPECT_FALSE(errors_of({}, "[model]\nd_model = \"\"\"\n").empty());
}

// A line that cannot be a value takes the meaning of what follows with it: nothing else is said about the file.
TEST(Resolve, ASyntaxErrorIsTheOnlyError) {
  const std::string good = kMinimal;
  for (const char* broken : {"[model\n", "[[model]\n", "[model]]\n", "model] \n"}) {
    std::string text = good;
    text.replace(text.find("[model]\n"), 8, broken);
    const auto errors = errors_of({}, text);
    ASSERT_EQ(errors.size(), 1U) << ::testing::PrintToString(errors);
    EXPECT_NE(errors[0].find("test.toml:"), std::string::npos) << errors[0];
    EXPECT_EQ(errors[0].find("missing"), std::string::npos) << errors[0];
  }
  EXPECT_EQ(errors_of({}, "just a text\nof two lines\n").size(), 1U);
  EXPECT_EQ(errors_of({"train.steps=0"}, "just a text\n").size(), 2U) << "an override stands by itself";
  // A value that is no TOML spoils one key, and what else is wrong is still found.
  std::string text = good;
  text.replace(text.find("steps = 1000"), 12, "steps = 10O0");
  text.replace(text.find("lr = 1e-3"), 9, "lr = -1");
  const auto errors = errors_of({}, text);
  ASSERT_EQ(errors.size(), 2U) << ::testing::PrintToString(errors);
}

// fp32 holds no 1e-60, bf16 runs keep their moments in fp32; fp64 does.
TEST(Resolve, OptimizerNumbersThatTheirTypeCannotHold) {
  for (const char* dtype : {"run.dtype=fp32", "run.dtype=bf16"}) {
    SCOPED_TRACE(dtype);
    expect_one(errors_of({dtype, "optimizer.eps=1e-60"}), "optimizer.eps = 1e-60", "expected at least 1.8e-22");
    expect_one(errors_of({dtype, "optimizer.eps=1e-40"}), "optimizer.eps = 1e-40", "in fp32");
    expect_one(errors_of({dtype, "optimizer.eps=1e-24"}), "optimizer.eps = 1e-24", "m / eps");
    expect_one(errors_of({dtype, "optimizer.clip=1e-30"}), "optimizer.clip = 1e-30", "0 (off) or at least");
    expect_one(errors_of({dtype, "optimizer.lr=1e-39"}), "optimizer.lr = 1e-39", "no weight would change");
    expect_one(errors_of({dtype, "optimizer.beta1=0.99999999"}), "optimizer.beta1", "1 in fp32");
    expect_one(errors_of({dtype, "optimizer.beta2=0.99999999"}), "optimizer.beta2", "1 in fp32");
    EXPECT_TRUE(errors_of({dtype, "optimizer.eps=2e-22", "optimizer.clip=0", "optimizer.beta2=0.95"}).empty());
    EXPECT_TRUE(errors_of({dtype, "optimizer.eps=1e-15", "optimizer.beta2=0.9999"}).empty());
  }
  EXPECT_TRUE(errors_of({"run.dtype=fp64", "optimizer.eps=1e-60", "optimizer.clip=1e-30", "optimizer.lr=1e-39",
                         "optimizer.beta1=0.99999999", "optimizer.beta2=0.99999999"})
                  .empty());
  expect_one(errors_of({"run.dtype=fp64", "optimizer.eps=1e-200"}), "optimizer.eps = 1e-200", "in fp64");
}

TEST(Resolve, NamesThatAreNotUtf8AreRefused) {
  expect_one(errors_of({"data.path=caf\xe9"}), "data.path = 'caf\\xe9'", "expected UTF-8");
  expect_one(errors_of({"run.dir=caf\xe9"}), "run.dir = 'caf\\xe9'", "(command line)");
  expect_one(errors_of({"run.init_from=caf\xe9"}), "run.init_from = 'caf\\xe9'", "expected UTF-8");
  EXPECT_TRUE(errors_of({"data.path=caf\xc3\xa9", "run.dir=caf\xc3\xa9"}).empty());
  try {
    resolve(parse_config(kMinimal, "caf\xe9.toml", {}), facts());
    FAIL();
  } catch (const ConfigError& e) {
    expect_one(e.errors(), "run.dir = 'runs/caf\\xe9'", "derived from the file's name");
  }
}

}  // namespace
}  // namespace ashlar::config::testing
