// The classes whose layers are of two kinds: what is read of their files, both ways, and what is refused.
#include <cmath>
#include <nlohmann/json.hpp>

#include "parallel/model/rope_frequencies.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormPlacement;
using model::RopeScaling;
using model::ScaledLayers;
using nlohmann::json;
using ::testing::Contains;
using testing::golden_config;
using ::testing::HasSubstr;
using testing::read_golden;
using Cycle = std::vector<int64_t>;

HfConfig read_changed(const json& config, const json& changes = {}) {
  return parse_hf_config(testing::changed(config, changes).dump(), "config.json");
}

/// Sizes that a small model of any of these classes has.
json sizes(const char* model_type, const json& more) {
  json config = {{"model_type", model_type}, {"vocab_size", 61},           {"max_position_embeddings", 64},
                 {"hidden_size", 24},        {"intermediate_size", 36},    {"num_hidden_layers", 5},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2},   {"head_dim", 8},
                 {"rms_norm_eps", 3e-4},     {"tie_word_embeddings", true}};
  config.update(more);
  return config;
}
json gemma2(const json& more = json::object()) {
  json config = sizes("gemma2", {{"sliding_window", 7},
                                 {"query_pre_attn_scalar", 24},
                                 {"attn_logit_softcapping", 5.0},
                                 {"final_logit_softcapping", 3.0}});
  config.update(more);
  return config;
}
json olmo3(const json& more = json::object()) {
  json config = sizes("olmo3", {{"sliding_window", 7}, {"tie_word_embeddings", false}});
  config.erase("head_dim");
  config.update(more);
  return config;
}
json cohere2() {
  json config =
      sizes("cohere2", {{"sliding_window", 7}, {"logit_scale", 0.25}, {"layer_norm_eps", 3e-4}, {"head_dim", 6}});
  config.erase("rms_norm_eps");
  config["layer_types"] = {"sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
                           "sliding_attention"};
  return config;
}
json cwm(const json& more = json::object()) {
  json config = sizes("cwm", {{"sliding_window", 7}, {"tie_word_embeddings", false}});
  config.update(more);
  return config;
}

TEST(MixedLayers, AxesOfTheGemmas) {
  const HfConfig second = read_changed(gemma2());
  EXPECT_EQ(second.family->model_type, "gemma2");
  const ModelConfig& m = second.model;
  EXPECT_EQ(m.norm.placement, NormPlacement::kSandwich);
  EXPECT_TRUE(m.norm.variant.unit_offset);
  EXPECT_EQ(m.attn.window_cycle, (Cycle{7, -1}));
  EXPECT_EQ(m.attn.softcap, 5.0);
  EXPECT_EQ(m.softcap, 3.0);
  EXPECT_DOUBLE_EQ(m.attn.scale, 1 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(m.embed_scale, std::sqrt(24.0));
  EXPECT_EQ(m.ffn.act, Activation::kGeluTanh);
  EXPECT_TRUE(m.tied);

  json vault = gemma2({{"model_type", "vaultgemma"}});
  ModelConfig pre = m;
  pre.norm.placement = NormPlacement::kPre;
  EXPECT_EQ(read_changed(vault).model, pre) << "Gemma 2 but for the norms on the branches' outputs";

  const HfConfig third = read_golden("gemma3");
  EXPECT_EQ(third.family->model_type, "gemma3_text");
  EXPECT_EQ(third.model.attn.window_cycle, (Cycle{7, 7, 7, 7, 7, -1}));
  EXPECT_EQ(third.model.qk_norm, (model::QkNormConfig{.kind = model::QkNorm::kHead, .eps = 3e-4}));
  EXPECT_EQ(third.model.rope, (model::RopeConfig{.base = 1e6,
                                                 .dims = 12,
                                                 .local_base = 1e4,
                                                 .scaling = RopeScaling::kLinear,
                                                 .scaled_layers = ScaledLayers::kFull,
                                                 .factor = 8}));
  EXPECT_EQ(third.model.attn.softcap, std::nullopt);

  const HfConfig fourth = read_golden("gemma4");
  EXPECT_EQ(fourth.family->model_type, "gemma4_text");
  const ModelConfig& f = fourth.model;
  EXPECT_FALSE(f.norm.variant.unit_offset);
  EXPECT_EQ(f.attn.scale, 1);
  EXPECT_EQ(f.head_dim, 8);
  EXPECT_EQ(f.attn.global_head_dim, 12);
  EXPECT_EQ(f.attn.global_n_kv_heads, 1);
  EXPECT_TRUE(f.attn.k_eq_v && f.attn.v_norm && f.block.out_scalar);
  EXPECT_EQ(f.rope.global_dims, 2) << "whole pairs of a quarter of twelve columns";
  EXPECT_EQ(f.rope.dims, 8);
  EXPECT_EQ(f.rope.scaling, RopeScaling::kProportional);
  EXPECT_EQ(f.rope.scaled_layers, ScaledLayers::kFull);
}

TEST(MixedLayers, AxesOfTheOthers) {
  const ModelConfig cohere = read_changed(cohere2()).model;
  EXPECT_EQ(cohere.attn.window_cycle, (Cycle{7, 7, 7, -1}));
  EXPECT_FALSE(cohere.rope.global_enabled);
  EXPECT_EQ(cohere.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(cohere.block.topology, model::Topology::kParallel);
  EXPECT_EQ(cohere.logit_scale, 0.25);

  const ModelConfig olmo = read_changed(olmo3()).model;
  EXPECT_EQ(olmo.norm.placement, NormPlacement::kOutput);
  EXPECT_EQ(olmo.qk_norm.kind, model::QkNorm::kFull);
  EXPECT_EQ(olmo.attn.window_cycle, (Cycle{7, 7, 7, -1}));
  EXPECT_EQ(olmo.rope.base, 500000.0);
  EXPECT_EQ(olmo.rope.local_base, std::nullopt);

  const ModelConfig exaone = read_golden("exaone4").model;
  EXPECT_EQ(exaone.attn.window_cycle, (Cycle{7, 7, 7, -1}));
  EXPECT_FALSE(exaone.rope.global_enabled);
  EXPECT_EQ(exaone.qk_norm.kind, model::QkNorm::kHead);
  EXPECT_EQ(exaone.norm.placement, NormPlacement::kOutput);

  const ModelConfig granite = read_golden("granite_swa").model;
  EXPECT_EQ(granite.attn.window_cycle, (Cycle{-1, 7, 7, 7}));
  EXPECT_TRUE(granite.attn.sinks);
  EXPECT_EQ(granite.attn.scale, 0.3);
  EXPECT_EQ(granite.block.residual_multiplier, 0.5);
  EXPECT_TRUE(granite.rope.base_cycle.empty()) << "all layers have one base";

  const ModelConfig code = read_changed(cwm()).model;
  EXPECT_EQ(code.attn.window_cycle, (Cycle{-1, 7, 7, 7}));
  EXPECT_EQ(code.rope.base, 1e6);
  EXPECT_EQ(code.rope.scaling, RopeScaling::kLlama3) << "the scaling of the class";
  EXPECT_EQ(code.rope.original_positions, 8192);
}

/// The same model as version 4 and version 5 write it, other sizes, and keys that are absent.
TEST(MixedLayers, BothSpellingsAndDefaults) {
  const json linear = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}};
  const json plain = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  const json old_keys = {{"-rope_theta", 0},
                         {"-rope_scaling", 0},
                         {"-rope_local_base_freq", 0},
                         {"-sliding_window_pattern", 0},
                         {"-_sliding_window_pattern", 0}};
  json changes = old_keys;
  changes["rope_parameters"] = {{"full_attention", linear}, {"sliding_attention", plain}};
  EXPECT_EQ(read_golden("gemma3", changes).model, read_golden("gemma3").model);
  changes["rope_parameters"] = nullptr;
  changes["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};  // bases of the class
  changes.erase("-rope_scaling");
  EXPECT_EQ(read_golden("gemma3", changes).model, read_golden("gemma3").model);
  // Scaled everywhere, or nowhere.
  changes = old_keys;
  changes["rope_parameters"] = {{"full_attention", linear}, {"sliding_attention", linear}};
  const ModelConfig everywhere = read_golden("gemma3", changes).model;
  EXPECT_EQ(everywhere.rope.scaled_layers, ScaledLayers::kAll);
  EXPECT_EQ(everywhere.rope.local_base, std::nullopt) << "linear has the base 1e6";
  EXPECT_EQ(read_golden("gemma3", old_keys).model.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(
      read_golden("gemma3", {{"sliding_window_pattern", 2}, {"_sliding_window_pattern", 2}}).model.attn.window_cycle,
      (Cycle{7, -1}));

  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  const ModelConfig scaled = read_changed(olmo3({{"rope_scaling", yarn}, {"rope_theta", 5e5}})).model;
  EXPECT_EQ(scaled.rope.scaled_layers, ScaledLayers::kFull);
  json full = yarn;
  full["rope_theta"] = 5e5;
  EXPECT_EQ(read_changed(olmo3({{"rope_parameters", {{"full_attention", full}}}})).model, scaled);
  EXPECT_EQ(read_changed(olmo3({{"rope_theta", 1e4}})).model.rope.local_base, 500000.0)
      << "version 5 reads it for full layers";

  EXPECT_EQ(read_changed(cohere2(), {{"-layer_types", 0}}).model.attn.window_cycle, (Cycle{7, 7, 7, -1}));
  EXPECT_EQ(read_changed(cohere2(), {{"-layer_types", 0}, {"sliding_window_pattern", 2}}).model.attn.window_cycle,
            (Cycle{7, -1}));
  EXPECT_EQ(read_changed(cohere2(), {{"-layer_types", 0}, {"-sliding_window", 0}}).model.attn.window_cycle[0], 4096);
  const json all_full = {"full_attention", "full_attention", "full_attention", "full_attention", "full_attention"};
  const HfConfig open = read_golden("exaone4", {{"sliding_window", nullptr}, {"layer_types", all_full}});
  EXPECT_EQ(open.model.attn.window_cycle, (Cycle{-1}));
  EXPECT_TRUE(open.model.rope.global_enabled) << "without a window all layers rotate";
  json letters = {"sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(
      read_golden("exaone4", {{"sliding_window_pattern", "LLLG"}, {"layer_types", letters}}).model.attn.window_cycle,
      (Cycle{7, 7, 7, -1, -1}));
  EXPECT_EQ(read_golden("granite_swa", {{"layer_rope_theta", {0, 1e4, 1e4, 2e4, 0}}}).model.rope.base_cycle,
            (std::vector<double>{0, 1e4, 1e4, 2e4}));
  EXPECT_EQ(read_golden("granite_swa", {{"layer_rope_theta", nullptr}, {"-layer_types", 0}}).model,
            read_golden("granite_swa").model);
  EXPECT_EQ(read_changed(cwm({{"rope_theta", 1e4}, {"rope_scaling", nullptr}})).model.rope.base, 1e4);
  EXPECT_EQ(
      read_changed(cwm({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}})).model.rope.scaling,
      RopeScaling::kNone);
  EXPECT_EQ(read_changed(gemma2({{"attn_logit_softcapping", nullptr}})).model.attn.softcap, std::nullopt);
  EXPECT_THAT(read_changed(gemma2({{"hidden_act", "silu"}})).notes, Contains(HasSubstr("hidden_act")));

  // The heads of full layers: by layer, or as older files say them.
  const json old_heads = {{"-per_layer_config", 0}, {"global_head_dim", 12}, {"num_global_key_value_heads", 1}};
  EXPECT_EQ(read_golden("gemma4", old_heads).model, read_golden("gemma4").model);
  EXPECT_EQ(read_golden("gemma4", {{"-per_layer_config", 0}}).model.attn.global_head_dim, 512);
  EXPECT_EQ(read_golden("gemma4", {{"per_layer_config", json::object()}}).model.attn.global_head_dim, std::nullopt);
  const ModelConfig usual = read_golden("gemma4", {{"-rope_parameters", 0}}).model;
  EXPECT_EQ(usual, read_golden("gemma4").model) << "its rotation is the default of the class";
  json sliding_last = golden_config("gemma4")["layer_types"];
  sliding_last[5] = "sliding_attention";
  EXPECT_EQ(read_golden("gemma4", {{"layer_types", sliding_last}, {"use_bidirectional_attention", "vision"}}).model,
            read_golden("gemma4").model);
}

TEST(MixedLayers, RefusedByTheKey) {
  const auto expect = [](const json& config, const json& changes, const char* text) {
    EXPECT_THAT(testing::error_of([&] { read_changed(config, changes); }).what(), HasSubstr(text)) << changes;
  };
  const json gemma3 = golden_config("gemma3"), gemma4 = golden_config("gemma4");
  expect(gemma3, {{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping");
  expect(gemma3, {{"rope_parameters", {{"rope_type", "default"}}}}, "rope_parameters.rope_type");
  expect(gemma3, {{"rope_parameters", {{"full_attention", 5}}}}, "full_attention");
  expect(gemma3, {{"rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}}}, {"rope_scaling", nullptr}},
         "rope_theta");
  expect(gemma3, {{"rope_parameters", {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}}}}}},
         "rope_scaling and rope_parameters.full_attention differ");
  expect(gemma3,
         {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 4.0}}}}},
          {"rope_scaling", nullptr}},
         "rope_parameters.sliding_attention");
  expect(gemma3, {{"_sliding_window_pattern", 4}}, "_sliding_window_pattern");
  expect(gemma3, {{"use_bidirectional_attention", true}}, "use_bidirectional_attention");
  expect(gemma2(), {{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar");
  expect(gemma2(), {{"attn_logit_softcapping", -1.0}}, "attn.softcap");
  expect(cohere2(), {{"sliding_window_pattern", 2}}, "got another kind at layer 1");
  expect(cohere2(), {{"head_dim", 10}}, "head_dim");
  expect(golden_config("exaone4"), {{"sliding_window_pattern", "LLLG"}},
         "expected a number, since layer_types is not given");
  expect(golden_config("exaone4"), {{"sliding_window_pattern", 0}}, "sliding_window_pattern");
  expect(golden_config("granite_swa"), {{"layer_rope_theta", {1e4}}}, "one for each layer");
  expect(golden_config("granite_swa"), {{"layer_rope_theta", {-1, 1, 1, 1, 1}}}, "layer_rope_theta");
  expect(cwm(), {{"attention_bias", true}}, "attention_bias");
  expect(gemma4, {{"-hidden_size_per_layer_input", 0}}, "hidden_size_per_layer_input");
  expect(gemma4, {{"num_kv_shared_layers", 2}}, "num_kv_shared_layers");
  expect(gemma4, {{"enable_moe_block", true}}, "enable_moe_block");
  expect(gemma4, {{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention");
  expect(gemma4, {{"global_head_dim", 16}}, "expected 12, the width that per_layer_config gives");
  expect(gemma4, {{"num_global_key_value_heads", 2}}, "expected 1, the number that per_layer_config gives");
  expect(gemma4, {{"per_layer_config", {{"0", {{"head_dim", 12}}}}}}, "remove those of layer 0");
  expect(gemma4, {{"per_layer_config", {{"5", {{"intermediate_size", 12}}}}}}, "per_layer_config.5.intermediate_size");
  expect(gemma4, {{"per_layer_config", {{"7", {{"head_dim", 12}}}}}},
         "expected only layer numbers from 0 to 5 as keys");
  expect(gemma4, {{"per_layer_config", {{"5", 12}}}}, "per_layer_config.5: expected an object, got a JSON number");
  const json halved = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}, {"factor", 2.0}};
  expect(gemma4, {{"rope_parameters", {{"full_attention", halved}}}}, "rope_parameters.full_attention.factor");
}

/// Written and read again each model is itself; a class without an axis refuses by its name.
TEST(MixedLayers, ExportAsTheClassThatHasTheAxis) {
  const std::vector<json> all = {gemma2(),
                                 gemma2({{"model_type", "vaultgemma"}}),
                                 olmo3({{"rope_theta", 1e4}}),
                                 cwm(),
                                 golden_config("gemma3"),
                                 golden_config("gemma4"),
                                 cohere2(),
                                 golden_config("exaone4"),
                                 golden_config("granite_swa")};
  for (const json& config : all) {
    const HfConfig c = read_changed(config);
    SCOPED_TRACE(c.family->class_name);
    EXPECT_EQ(&choose_family(c.model, c.family), c.family);
    // CWM has no axis that the plainer class lacks.
    EXPECT_EQ(choose_family(c.model, nullptr).model_type,
              c.family->model_type == "cwm" ? "ministral" : c.family->model_type);
    EXPECT_EQ(parse_hf_config(write_hf_config(c, "float32"), "again").model, c.model);
  }
  const auto obstacle = [](const json& config, const auto& change) {
    HfConfig c = read_changed(config);
    change(c.model);
    const std::vector<std::string> found = obstacles(*c.family, c.model);
    std::string texts;
    for (const std::string& text : found) texts += text + "\n";
    return found.empty() ? std::string("none") : texts;
  };
  const json gemma3 = golden_config("gemma3"), gemma4 = golden_config("gemma4");
  // The same by layer is the same model.
  EXPECT_EQ(obstacle(gemma3,
                     [](ModelConfig& m) {
                       m.rope.local_base.reset();
                       m.rope.base_cycle = {1e4, 1e4, 1e4, 1e4, 1e4, 1e6};
                     }),
            "none");
  EXPECT_THAT(obstacle(gemma3,
                       [](ModelConfig& m) {
                         m.rope.base_cycle = {1e4, 1e6}, m.rope.local_base.reset();
                       }),
              HasSubstr("rope.base_cycle"));
  EXPECT_THAT(obstacle(gemma3, [](ModelConfig& m) { m.rope.global_enabled = false; }), HasSubstr("rope."));
  EXPECT_THAT(obstacle(gemma2(), [](ModelConfig& m) { m.rope.local_base = 100; }), HasSubstr("rope.base"));
  EXPECT_THAT(obstacle(gemma2(), [](ModelConfig& m) { m.attn.scale = 0.3; }), HasSubstr("attn.scale"));
  EXPECT_THAT(obstacle(olmo3({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
                       [](ModelConfig& m) { m.rope.scaled_layers = ScaledLayers::kAll; }),
              HasSubstr("none"));
  EXPECT_THAT(obstacle(cohere2(), [](ModelConfig& m) { m.rope.global_enabled = true; }), HasSubstr("rope.base_cycle"));
  EXPECT_THAT(obstacle(golden_config("exaone4"), [](ModelConfig& m) { m.rope.global_enabled = true; }),
              HasSubstr("rope.base_cycle"));
  EXPECT_EQ(obstacle(golden_config("exaone4"),
                     [](ModelConfig& m) {
                       m.rope.global_enabled = true;
                       m.attn.window_cycle = {-1};
                     }),
            "none");
  EXPECT_EQ(obstacle(golden_config("exaone4"), [](ModelConfig& m) { m.attn.window_cycle = {-1}; }), "none")
      << "no layer rotates";
  EXPECT_EQ(obstacle(golden_config("granite_swa"), [](ModelConfig& m) { m.rope.local_base = 100; }), "none");
  EXPECT_THAT(obstacle(golden_config("granite_swa"), [](ModelConfig& m) { m.attn.sinks = false; }),
              HasSubstr("attn.sinks"));
  EXPECT_THAT(obstacle(gemma4, [](ModelConfig& m) { m.block.out_scalar = false; }), HasSubstr("block.out_scalar"));
  EXPECT_THAT(obstacle(gemma4, [](ModelConfig& m) { m.attn.v_norm = false; }), HasSubstr("attn.v_norm"));
  EXPECT_EQ(obstacle(gemma4, [](ModelConfig& m) { m.attn.k_eq_v = false; }), "none");
  EXPECT_EQ(obstacle(gemma4, [](ModelConfig& m) { m.rope.global_dims = 10; }), "none");
  EXPECT_THAT(obstacle(gemma4, [](ModelConfig& m) { m.attn.last_layer_full = true, m.attn.window_cycle = {7}; }),
              HasSubstr("none"));
  EXPECT_THAT(obstacle(gemma4, [](ModelConfig& m) { m.attn.window_cycle = {-1, 7}; }), HasSubstr("window_cycle"));
  for (const auto& [what, change] : std::vector<std::pair<const char*, void (*)(ModelConfig&)>>{
           {"attn.global_head_dim", [](ModelConfig& m) { m.attn.global_head_dim = 12; }},
           {"attn.global_n_kv_heads", [](ModelConfig& m) { m.attn.global_n_kv_heads = 4; }},
           {"attn.k_eq_v", [](ModelConfig& m) { m.attn.k_eq_v = true; }},
           {"rope.global_dims", [](ModelConfig& m) { m.rope.global_dims = 4; }}})
    EXPECT_THAT(obstacle(gemma2(), change), HasSubstr(what));
}

}  // namespace
}  // namespace ashlar::hf
