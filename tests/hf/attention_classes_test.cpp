// The classes made of windows, ALiBi and clipping: what is read of their files, both ways, and what is refused.
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/config/run_config.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using ::testing::HasSubstr;
using testing::read_golden;
using Cycle = std::vector<int64_t>;

/// Of each folder: the class, and the axes that differ from Llama's, by the published description of the class.
TEST(AttentionClasses, AxesOfTheirFiles) {
  const HfConfig mistral = read_golden("mistral");
  EXPECT_EQ(mistral.family->model_type, "mistral");
  EXPECT_EQ(mistral.model.attn.window_cycle, (Cycle{7}));
  EXPECT_EQ(mistral.model.head_dim, 6);
  EXPECT_EQ(read_golden("ministral").model.attn.window_cycle, (Cycle{7, -1}));
  EXPECT_EQ(read_golden("qwen2_window").model.attn.window_cycle, (Cycle{-1, 7, 7}));
  EXPECT_EQ(read_golden("phi3_window").model.attn.window_cycle, (Cycle{7}));

  const ModelConfig starcoder = read_golden("starcoder2").model;
  EXPECT_EQ(starcoder.attn.window_cycle, (Cycle{-1}));
  EXPECT_EQ(starcoder.bias, (model::BiasConfig{true, true, true, false}));
  EXPECT_EQ(starcoder.ffn, (model::FfnConfig{Activation::kGeluTanh, false}));
  EXPECT_TRUE(starcoder.tied);

  const ModelConfig neo = read_golden("gpt_neo").model;
  EXPECT_EQ(neo.attn.window_cycle, (Cycle{-1, 5}));
  EXPECT_EQ(neo.attn.scale, 1.0);
  EXPECT_EQ(neo.bias, (model::BiasConfig{false, true, true, false}));
  EXPECT_EQ(neo.pos, (model::PosConfig{.type = model::PosType::kLearned, .max_positions = 64}));

  const ModelConfig mpt = read_golden("mpt").model;
  EXPECT_EQ(mpt.pos.type, model::PosType::kAlibi);
  EXPECT_EQ(mpt.attn.clip_qkv, 0.9);
  EXPECT_EQ(mpt.norm.affine, model::NormAffine::kScale);
  EXPECT_EQ(mpt.d_ff, 4 * mpt.d_model);

  const ModelConfig olmo = read_golden("olmo_clip").model;
  EXPECT_EQ(olmo.attn.clip_qkv, 0.9);
  EXPECT_EQ(olmo.norm.affine, model::NormAffine::kNone);
  EXPECT_EQ(olmo.norm.variant, (NormVariant{.type = NormType::kLayerNorm, .eps = 1e-5}));

  const ModelConfig falcon = read_golden("falcon_alibi").model;
  EXPECT_EQ(falcon.pos.type, model::PosType::kAlibi);
  EXPECT_DOUBLE_EQ(falcon.pos.alibi_scale, 1 / std::sqrt(6.0));
  EXPECT_EQ(falcon.rope, model::RopeConfig{});
}

/// Other values of the same keys, and keys that are absent: the class's own defaults, with a note.
TEST(AttentionClasses, OtherSpellingsAndDefaults) {
  const auto cycle = [](const char* folder, const nlohmann::json& changes) {
    return read_golden(folder, changes).model.attn.window_cycle;
  };
  EXPECT_EQ(cycle("mistral", {{"sliding_window", nullptr}}), (Cycle{-1}));
  EXPECT_EQ(cycle("mistral", {{"-sliding_window", 0}}), (Cycle{4096}));
  EXPECT_THAT(read_golden("mistral", {{"-sliding_window", 0}}).notes, ::testing::Contains(HasSubstr("4096")));
  EXPECT_EQ(cycle("starcoder2", {{"sliding_window", 16}}), (Cycle{16}));
  EXPECT_EQ(cycle("ministral", {{"-layer_types", 0}}), (Cycle{7}));
  EXPECT_EQ(cycle("ministral",
                  {{"layer_types", {"full_attention", "full_attention", "sliding_attention", "full_attention"}}}),
            (Cycle{-1, -1, 7}));
  EXPECT_EQ(cycle("gpt_neo", {{"attention_types", {{{"local"}, 3}, {{"global"}, 1}}}, {"-attention_layers", 0}}),
            (Cycle{5, 5, 5, -1}));
  EXPECT_EQ(read_golden("mpt", {{"attn_config", {{"clip_qkv", nullptr}, {"softmax_scale", 0.25}}}}).model.attn.scale,
            0.25);
  const HfConfig ignored = read_golden("mpt", {{"attn_config", {{"alibi", false}, {"alibi_bias_max", 16}}}});
  EXPECT_EQ(ignored.model.pos.type, model::PosType::kAlibi) << "the class has no other";
  EXPECT_EQ(ignored.notes.size(), 2U);
  EXPECT_EQ(read_golden("olmo_clip", {{"clip_qkv", nullptr}}).model.attn.clip_qkv, std::nullopt);
}

TEST(AttentionClasses, RefusedByTheKey) {
  const auto expect = [](const char* folder, const nlohmann::json& changes, const char* text) {
    EXPECT_THAT(testing::error_of([&] { read_golden(folder, changes); }).what(), HasSubstr(text)) << folder;
  };
  expect("mistral", {{"sliding_window", 0}}, "sliding_window");
  expect("mistral", {{"layer_types", {"full_attention", "full_attention"}}},
         "does not read this key; remove layer_types");
  expect("ministral", {{"layer_types", {"full_attention"}}}, "a list of 4 strings, one for each layer");
  expect("ministral", {{"layer_types", {"a", "b", "c", "d"}}}, "for layer 0, got \"a\"; correct");
  expect("ministral", {{"sliding_window", nullptr}}, "sliding_window is not set");
  expect("gpt_neo", {{"attention_types", {{{"local"}, 3}}}, {"-attention_layers", 0}},
         "\"local\" for 4 layers (num_layers), got kinds for 3; correct");
  expect("gpt_neo", {{"attention_types", 5}}, "attention_types");
  expect("gpt_neo", {{"attention_layers", {"local", "local", "local", "local"}}}, "attention_layers");
  expect("mpt", {{"attn_config", {{"prefix_lm", true}}}}, "attn_config.prefix_lm");
  expect("mpt", {{"attn_config", {{"attn_type", "grouped_query_attention"}}}}, "attn_config.attn_type");
  expect("mpt", {{"attn_config", {{"sliding_window_size", 5}}}}, "attn_config.sliding_window_size");
  expect("olmo_clip", {{"clip_qkv", -1.0}}, "attn.clip_qkv");
}

/// Written and read again each model is itself; a class without an axis refuses by its name.
TEST(AttentionClasses, ExportAsTheClassThatHasTheAxis) {
  for (const char* folder : {"mistral", "ministral", "qwen2_window", "phi3_window", "starcoder2", "gpt_neo", "mpt",
                             "olmo_clip", "falcon_alibi"}) {
    SCOPED_TRACE(folder);
    const HfConfig config = read_golden(folder);
    EXPECT_EQ(&choose_family(config.model, config.family), config.family);
    EXPECT_EQ(parse_hf_config(write_hf_config(config, "float32"), "again").model, config.model);
  }
  const auto obstacle = [](const char* folder, const auto& change) {
    HfConfig config = read_golden(folder);
    change(config.model);
    const std::vector<std::string> found = obstacles(*config.family, config.model);
    return found.empty() ? std::string("none") : found[0];
  };
  EXPECT_THAT(obstacle("mistral", [](ModelConfig& m) { m.attn.window_cycle = {7, -1}; }), HasSubstr("window_cycle"));
  EXPECT_THAT(obstacle("mistral", [](ModelConfig& m) { m.attn.window_cycle = {7, 7}; }), HasSubstr("none"));
  EXPECT_THAT(obstacle("mistral", [](ModelConfig& m) { m.attn.softcap = 30; }), HasSubstr("attn.softcap = 30"));
  EXPECT_THAT(obstacle("mistral", [](ModelConfig& m) { m.attn.clip_qkv = 8; }), HasSubstr("attn.clip_qkv = 8"));
  EXPECT_THAT(obstacle("mistral", [](ModelConfig& m) { m.attn.sinks = true; }), HasSubstr("attn.sinks = true"));
  EXPECT_THAT(obstacle("ministral", [](ModelConfig& m) { m.attn.window_cycle = {7, 8}; }), HasSubstr("window_cycle"));
  EXPECT_THAT(obstacle("ministral", [](ModelConfig& m) { m.attn.window_kind = model::WindowKind::kChunked; }),
              HasSubstr("window_kind"));
  EXPECT_THAT(obstacle("ministral", [](ModelConfig& m) { m.attn.last_layer_full = true; }), HasSubstr("none"))
      << "the last layer is full as it is";
  EXPECT_THAT(obstacle("falcon_alibi", [](ModelConfig& m) { m.pos.alibi_scale = 1; }), HasSubstr("pos.alibi_scale"));
  EXPECT_THAT(obstacle("mpt", [](ModelConfig& m) { m.d_ff = 100; }), HasSubstr("model.d_ff = 100"));
  EXPECT_THAT(obstacle("olmo_clip", [](ModelConfig& m) { m.norm.variant.eps = 1e-6; }), HasSubstr("norm.eps"));
  EXPECT_THAT(obstacle("gpt_neo", [](ModelConfig& m) { m.attn.scale = 0.5; }), HasSubstr("attn.scale"));
  EXPECT_EQ(choose_family(read_golden("mistral").model, nullptr).model_type, "mistral");
  EXPECT_EQ(choose_family(read_golden("ministral").model, nullptr).model_type, "ministral");
  EXPECT_EQ(choose_family(read_golden("mpt").model, nullptr).model_type, "mpt");
  // Mistral without a window is Llama.
  EXPECT_EQ(choose_family(read_golden("mistral", {{"sliding_window", nullptr}}).model, nullptr).model_type, "llama");
}

}  // namespace
}  // namespace ashlar::hf
