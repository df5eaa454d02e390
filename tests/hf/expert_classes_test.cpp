// Classes with experts: what is read of their config.json, both ways, and what is refused.
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::MoeConfig;
using model::RotationKind;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::golden_dir;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::read_golden;
using Cycle = std::vector<int64_t>;

/// What the classes share: no balance loss.
MoeConfig experts_of(MoeConfig moe) {
  moe.balance = model::Balance::kNone;
  return moe;
}

TEST(ExpertClasses, AxesOfTheirFiles) {
  const ModelConfig mixtral = read_golden("mixtral").model;
  EXPECT_EQ(mixtral.moe, experts_of({.experts = 4, .top_k = 2, .d_ff = 28}));
  EXPECT_EQ(mixtral.n_kv_heads, 1);
  EXPECT_EQ(mixtral.rope.base, 1e6);
  EXPECT_EQ(read_golden("qwen2_moe").model.moe, experts_of({.experts = 5,
                                                            .top_k = 2,
                                                            .d_ff = 14,
                                                            .dense_layers = {1},
                                                            .shared_d_ff = 20,
                                                            .shared_gate = true,
                                                            .rule = {.renormalize = false}}));
  EXPECT_EQ(read_golden("qwen2_moe").model.bias, (model::BiasConfig{.qkv = true}));
  EXPECT_EQ(read_golden("qwen3_moe").model.moe,
            experts_of({.experts = 6, .top_k = 2, .d_ff = 14, .dense_layers = {0}}));
  EXPECT_EQ(read_golden("qwen3_moe").model.d_ff, 40);
  EXPECT_EQ(read_golden("olmoe").model.moe,
            experts_of({.experts = 6, .top_k = 2, .d_ff = 20, .rule = {.renormalize = false}}));
  EXPECT_EQ(read_golden("olmoe").model.qk_norm.kind, model::QkNorm::kFull);
  const ModelConfig granite = read_golden("granitemoe").model;
  EXPECT_EQ(granite.moe, experts_of({.experts = 5, .top_k = 2, .d_ff = 16}));
  EXPECT_EQ(granite.attn.scale, 0.3);
  EXPECT_EQ(granite.logit_scale, 0.5);
  EXPECT_EQ(read_golden("deepseek_v2").model.moe, experts_of({.experts = 6,
                                                              .top_k = 2,
                                                              .d_ff = 12,
                                                              .first_layer = 1,
                                                              .shared_d_ff = 12,
                                                              .rule = {.renormalize = false, .scale = 1.5}}));
  MoeConfig v3 = experts_of(
      {.experts = 8,
       .top_k = 3,
       .d_ff = 10,
       .first_layer = 1,
       .shared_d_ff = 10,
       .rule = {.score = RouterScore::kSigmoid, .groups = 4, .top_groups = 2, .sum_eps = 1e-20, .scale = 2.5},
       .selection_bias = true});
  EXPECT_EQ(read_golden("deepseek_v3").model.moe, v3);
  EXPECT_EQ(read_golden("deepseek_v3").model.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(read_golden("deepseek_v3").further_layers, 1);
  const ModelConfig glm = read_golden("glm4_moe").model;
  v3.experts = 6;
  v3.top_k = 2;
  v3.d_ff = v3.shared_d_ff = 12;
  v3.rule.scale = 1.5;
  v3.rule.groups = v3.rule.top_groups = 1;
  EXPECT_EQ(glm.moe, v3);
  EXPECT_EQ(glm.bias, (model::BiasConfig{.qkv = true}));
  EXPECT_EQ(glm.qk_norm.kind, model::QkNorm::kHead);
  EXPECT_EQ(glm.rope.dims, 4);
  EXPECT_EQ(glm.rope.style, RopeStyle::kHalf);
  EXPECT_EQ(read_golden("ernie4_5_moe").model.moe, experts_of({.experts = 6,
                                                               .top_k = 2,
                                                               .d_ff = 14,
                                                               .first_layer = 1,
                                                               .shared_d_ff = 14,
                                                               .rule = {.sum_floor = 1e-12},
                                                               .selection_bias = true}));
  EXPECT_EQ(
      read_golden("gemma4_moe").model.moe,
      experts_of({.experts = 5, .top_k = 2, .d_ff = 8, .router_norm = true, .expert_scale = true, .beside_ffn = true}));
  EXPECT_EQ(read_golden("gemma4_moe").model.d_ff, 20);
  const ModelConfig gpt = read_golden("gpt_oss").model;
  EXPECT_EQ(gpt.moe, experts_of({.experts = 4, .top_k = 2, .d_ff = 16, .router_bias = true}));
  EXPECT_EQ(gpt.ffn, (model::FfnConfig{Activation::kQuickGelu, true, 7.0, 1.0}));
  EXPECT_EQ(gpt.bias, (model::BiasConfig{.qkv = true, .attn_out = true, .ffn = true}));
  EXPECT_EQ(gpt.attn.window_cycle, (Cycle{7, -1}));
  EXPECT_FALSE(gpt.rope.truncate);
  const ModelConfig llama = read_golden("llama4_text").model;
  EXPECT_EQ(llama.moe, experts_of({.experts = 3,
                                   .top_k = 1,
                                   .d_ff = 12,
                                   .every = 2,
                                   .shared_d_ff = 12,
                                   .scale_input = true,
                                   .rule = {.score = RouterScore::kSigmoid, .renormalize = false}}));
  EXPECT_EQ(llama.d_ff, 24);
  EXPECT_EQ(llama.rope.base_cycle, (std::vector<double>{5e3, 5e3, 5e3, 0}));
  EXPECT_EQ(llama.attn.window_cycle, (Cycle{8, 8, 8, -1}));
  EXPECT_EQ(llama.attn.window_kind, model::WindowKind::kChunked);
  EXPECT_EQ(llama.qk_norm.layers, RotationKind::kRotated);
  EXPECT_EQ(llama.attn.temperature_positions, 0);
}

TEST(ExpertClasses, OtherValuesAndDefaults) {
  const auto moe = [](const char* folder, const json& changes) { return read_golden(folder, changes).model.moe; };
  EXPECT_EQ(moe("mixtral", {{"-num_local_experts", 0}, {"num_experts", 3}}).experts, 3);
  EXPECT_EQ(moe("qwen3_moe", {{"-num_local_experts", 0}, {"num_experts", 7}}).experts, 7);
  EXPECT_FALSE(moe("qwen3_moe", {{"-norm_topk_prob", 0}}).rule.renormalize) << "the default of the class";
  EXPECT_TRUE(moe("qwen2_moe", {{"norm_topk_prob", true}}).rule.renormalize);
  EXPECT_TRUE(moe("olmoe", {{"norm_topk_prob", true}}).rule.renormalize);
  EXPECT_EQ(read_golden("olmoe", {{"clip_qkv", 0.5}}).model.attn.clip_qkv, 0.5);

  const ModelConfig sparse =
      read_golden(
          "qwen2_moe",
          {{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {9, 5, 0}}, {"-layer_types", 0}})
          .model;
  EXPECT_EQ(sparse.moe.dense_layers, (Cycle{0, 5})) << "ascending, without numbers of no layer";
  for (const int64_t layer : {1, 3}) EXPECT_TRUE(sparse.has_experts(layer)) << layer;
  for (const int64_t layer : {0, 2, 4, 5}) EXPECT_FALSE(sparse.has_experts(layer)) << layer;

  const MoeConfig groups =
      moe("deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", 3}, {"topk_group", 2}});
  EXPECT_EQ(groups.rule.groups, 3);
  EXPECT_EQ(groups.rule.top_groups, 2);
  EXPECT_EQ(groups.rule.group_score, GroupScore::kMax);
  EXPECT_EQ(moe("deepseek_v2", {{"n_group", 3}, {"topk_group", 2}}).rule.groups, 1) << "greedy does not read them";
  EXPECT_EQ(moe("deepseek_v2", {{"-first_k_dense_replace", 0}}).first_layer, 0);
  EXPECT_EQ(moe("deepseek_v2", {{"n_shared_experts", 3}}).shared_d_ff, 36);
  EXPECT_THAT(read_golden("deepseek_v2", {{"norm_topk_prob", true}}).notes, Contains(HasSubstr("has no effect")));
  EXPECT_THAT(read_golden("mixtral", {{"output_router_logits", true}}).notes, Contains(HasSubstr("moe.balance_coef")));

  EXPECT_EQ(
      moe("deepseek_v3", {{"-n_group", 0}, {"-topk_group", 0}, {"num_experts_per_tok", 4}, {"n_routed_experts", 16}})
          .rule.groups,
      8)
      << "the default of the class";
  EXPECT_EQ(moe("deepseek_v3", {{"-first_k_dense_replace", 0}, {"num_hidden_layers", 4}}).first_layer, 3);
  EXPECT_EQ(moe("glm4_moe", {{"n_group", 2}, {"topk_group", 1}}).rule.group_score, GroupScore::kTopTwo);
  EXPECT_EQ(read_golden("glm4_moe", {{"use_qk_norm", false}}).model.qk_norm.kind, model::QkNorm::kNone);
  EXPECT_EQ(read_golden("deepseek_v3", {{"rope_interleave", false}}).model.rope.style, RopeStyle::kHalf);
  EXPECT_EQ(moe("ernie4_5_moe", {{"moe_num_shared_experts", 0}}).shared_d_ff, 0);
  EXPECT_EQ(moe("ernie4_5_moe", {{"moe_num_shared_experts", 2}}).shared_d_ff, 28);
  const ModelConfig ernie = read_golden("ernie4_5_moe", {{"num_hidden_layers", 8},
                                                         {"moe_layer_start_index", 2},
                                                         {"moe_layer_end_index", 6},
                                                         {"moe_layer_interval", 2}})
                                .model;
  for (int64_t layer = 0; layer < 8; ++layer) EXPECT_EQ(ernie.has_experts(layer), layer == 3 || layer == 5) << layer;
  EXPECT_TRUE(read_golden("ernie4_5_moe", {{"moe_layer_end_index", -1}}).model.has_experts(1));

  EXPECT_EQ(read_golden("mixtral", {{"sliding_window", 9}}).model.attn.window_cycle, Cycle{9});
  EXPECT_EQ(read_golden("qwen3_moe", {{"sliding_window", 9}, {"use_sliding_window", true}}).model.attn.window_cycle,
            Cycle{9});
  EXPECT_EQ(read_golden("qwen2_moe", {{"num_hidden_layers", 5},
                                      {"sliding_window", 9},
                                      {"use_sliding_window", true},
                                      {"max_window_layers", 3},
                                      {"-layer_types", 0}})
                .model.attn.window_cycle,
            (Cycle{9, -1, 9, -1, -1}));

  EXPECT_EQ(read_golden("gpt_oss", {{"swiglu_limit", 3.5}}).model.ffn.clamp, 3.5);
  const HfConfig yarn = read_golden("gpt_oss", {{"-rope_scaling", 0}});
  EXPECT_EQ(yarn.model.rope.factor, 32);
  EXPECT_EQ(yarn.model.rope.original_positions, 4096);
  EXPECT_DOUBLE_EQ(yarn.model.rope.attention_factor, 0.1 * std::log(32.0) + 1);
  EXPECT_THAT(yarn.notes, Contains(HasSubstr("YaRN")));
  EXPECT_EQ(read_golden("gpt_oss", {{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_type", "default"}}}})
                .model.rope.scaling,
            model::RopeScaling::kNone);
  EXPECT_NO_THROW(read_golden("gpt_oss", {{"experts_per_token", 2}, {"initial_context_length", 4096}}));
}

// The values of classes for keys that a config.json lacks.
TEST(ExpertClasses, DefaultsOfEachClass) {
  const auto without = [](const char* folder, std::initializer_list<const char*> keys) {
    json changes = {{"num_hidden_layers", 6}};
    for (const char* key : keys) changes[str_cat("-", key)] = 0;
    return read_golden(folder, changes).model;
  };
  MoeConfig v3 = experts_of(
      {.experts = 256,
       .top_k = 8,
       .d_ff = 2048,
       .first_layer = 3,
       .shared_d_ff = 2048,
       .rule = {.score = RouterScore::kSigmoid, .groups = 8, .top_groups = 4, .sum_eps = 1e-20, .scale = 2.5},
       .selection_bias = true});
  const ModelConfig deepseek =
      without("deepseek_v3", {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
                              "first_k_dense_replace", "n_group", "topk_group", "norm_topk_prob",
                              "routed_scaling_factor", "rope_interleave"});
  EXPECT_EQ(deepseek.moe, v3);
  EXPECT_EQ(deepseek.rope.style, RopeStyle::kInterleaved);
  const ModelConfig glm =
      without("glm4_moe", {"n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
                           "first_k_dense_replace", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor",
                           "use_qk_norm", "partial_rotary_factor", "attention_bias"});
  v3.experts = 128;
  v3.d_ff = v3.shared_d_ff = 1408;
  v3.first_layer = 1;
  v3.rule.scale = 1;
  v3.rule.groups = v3.rule.top_groups = 1;
  EXPECT_EQ(glm.moe, v3);
  EXPECT_EQ(glm.qk_norm.kind, model::QkNorm::kNone);
  EXPECT_EQ(glm.rope.dims, 4) << "half of a head";
  EXPECT_EQ(glm.bias, model::BiasConfig{});
  EXPECT_EQ(
      without("ernie4_5_moe", {"moe_num_experts", "moe_k", "moe_intermediate_size", "moe_num_shared_experts",
                               "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_norm_min"})
          .moe,
      experts_of({.experts = 64,
                  .top_k = 6,
                  .d_ff = 1536,
                  .first_layer = 1,
                  .shared_d_ff = 3072,
                  .rule = {.sum_floor = 1e-12},
                  .selection_bias = true}));
  EXPECT_EQ(read_golden("gemma4_moe", {{"-enable_moe_block", 0}}).model.moe.experts, 0);
  const json shared =
      testing::changed(testing::golden_config("granitemoe"),
                       {{"model_type", "granitemoeshared"}, {"architectures", {"GraniteMoeSharedForCausalLM"}}});
  EXPECT_EQ(parse_hf_config(shared.dump(), "granitemoeshared").model.moe.shared_d_ff, 1024);
}

TEST(ExpertClasses, LayersOfLlama4) {
  const auto read = [](const json& changes) { return read_golden("llama4_text", changes).model; };
  EXPECT_EQ(read({{"-moe_layers", 0}}).moe.every, 2) << "by its step";
  EXPECT_EQ(read({{"-moe_layers", 0}, {"interleave_moe_layer_step", 1}}).expert_layers(), 4);
  EXPECT_EQ(read({{"moe_layers", {0, 3}}}).moe.dense_layers, (Cycle{1, 2})) << "a list is stronger than the step";
  EXPECT_EQ(read({{"no_rope_layers", json::array()}}), read({})) << "every fourth layer";
  const ModelConfig all = read({{"no_rope_layers", {1, 1, 1, 1}}, {"-layer_types", 0}});
  EXPECT_TRUE(all.rope.base_cycle.empty());
  EXPECT_EQ(all.attn.window_cycle, Cycle{8}) << "layers that rotate are chunked";
  EXPECT_EQ(read({{"use_qk_norm", false}}).qk_norm.kind, model::QkNorm::kNone);

  const ModelConfig tuned = read({{"attn_temperature_tuning", true}, {"floor_scale", 4}, {"attn_scale", 0.3}});
  EXPECT_EQ(tuned.attn.temperature_beta, 0.3);
  EXPECT_EQ(tuned.attn.temperature_positions, 4);
  EXPECT_EQ(tuned.attn.temperature_offset, 1);
  EXPECT_EQ(tuned.attn.temperature_layers, RotationKind::kUnrotated);
  EXPECT_EQ(read({{"attn_temperature_tuning", 4}, {"floor_scale", 4}, {"attn_scale", 0.3}}), tuned) << "older files";
  EXPECT_EQ(read({{"attn_temperature_tuning", 0}}), read({}));
  const json scout = {{"rope_type", "llama3"},
                      {"factor", 16.0},
                      {"low_freq_factor", 1.0},
                      {"high_freq_factor", 1.0},
                      {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(read({{"-rope_parameters", 0}, {"rope_scaling", scout}, {"rope_theta", 5e5}}).rope.high_freq_factor, 1)
      << "Scout's own scaling";
  EXPECT_EQ(read({{"-attn_temperature_tuning", 0}}).attn.temperature_positions, 8192) << "the default of the class";
}

// Every model that is read is written so that it is read again, in its own class.
TEST(ExpertClasses, WrittenAndReadAgain) {
  const std::pair<const char*, json> files[] = {
      {"mixtral", {{"head_dim", 8}, {"sliding_window", 9}, {"hidden_act", "gelu_pytorch_tanh"}}},
      {"qwen2_moe",
       {{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}, {"-layer_types", 0}}},
      {"qwen2_moe", {{"qkv_bias", false}, {"use_sliding_window", true}, {"sliding_window", 5}, {"-layer_types", 0}}},
      {"qwen3_moe", {{"attention_bias", true}, {"use_sliding_window", true}, {"sliding_window", 5}}},
      {"olmoe", {{"clip_qkv", 2.0}, {"num_key_value_heads", 2}, {"norm_topk_prob", true}}},
      {"granitemoe", {{"attention_bias", true}, {"num_experts_per_tok", 5}}},
      {"deepseek_v2",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 2}, {"topk_group", 1}, {"q_lora_rank", nullptr}}},
      {"deepseek_v2",
       {{"first_k_dense_replace", 0},
        {"rope_scaling",
         {{"type", "yarn"},
          {"factor", 4.0},
          {"original_max_position_embeddings", 16},
          {"mscale", 0.7},
          {"mscale_all_dim", 0.7}}}}},
      {"deepseek_v3", {{"norm_topk_prob", false}, {"rope_interleave", false}, {"n_group", 2}, {"topk_group", 1}}},
      {"deepseek_v3", {{"n_group", 1}, {"topk_group", 1}, {"n_shared_experts", 3}, {"first_k_dense_replace", 0}}},
      {"glm4_moe", {{"use_qk_norm", false}, {"n_group", 3}, {"topk_group", 2}, {"attention_bias", false}}},
      {"ernie4_5_moe", {{"moe_num_shared_experts", 0}, {"moe_norm_min", 1e-6}}},
      {"ernie4_5_moe",
       {{"num_hidden_layers", 8}, {"moe_layer_start_index", 2}, {"moe_layer_end_index", 6}, {"moe_layer_interval", 2}}},
      {"gemma4_moe", {{"top_k_experts", 3}}},
      {"gemma4_moe", {{"enable_moe_block", false}}},
      {"gpt_oss", {{"attention_bias", false}, {"layer_types", {"full_attention", "full_attention"}}}},
      {"gpt_oss", {{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_type", "default"}}}}},
      {"llama4_text", {{"attn_temperature_tuning", true}, {"floor_scale", 4}, {"moe_layers", {0, 1, 3}}}},
      {"llama4_text", {{"no_rope_layers", {1, 0, 1, 0}}, {"-layer_types", 0}, {"use_qk_norm", false}}}};
  const auto expect = [](const char* folder, const json& changes) {
    SCOPED_TRACE(str_cat(folder, " ", changes.dump()));
    const HfConfig config = read_golden(folder, changes);
    EXPECT_THAT(obstacles(*config.family, config.model), IsEmpty());
    const HfConfig again = parse_hf_config(write_hf_config(config, "float32"), folder);
    EXPECT_EQ(again.model, config.model);
    EXPECT_EQ(choose_family(config.model, config.family).model_type, config.family->model_type);
    EXPECT_THAT(obstacles(choose_family(config.model, nullptr), config.model), IsEmpty());
    if (config.model.moe.experts == 0) return;
    EXPECT_THAT(obstacles(testing::family("llama"), config.model), Contains(HasSubstr("moe.experts = ")));
  };
  for (const char* folder : testing::kGoldenExperts) expect(folder, json::object());
  for (const auto& [folder, changes] : files) expect(folder, changes);
}

// A model that says in another way which layers have experts, or has other values where they have no effect.
TEST(ExpertClasses, SettingsWithoutEffectAreNoObstacle) {
  ModelConfig m =
      read_golden("qwen2_moe", {{"num_hidden_layers", 4}, {"mlp_only_layers", {0}}, {"-layer_types", 0}}).model;
  const Family& qwen = testing::family("qwen2_moe");
  m.moe.dense_layers.clear();
  m.moe.first_layer = 1;
  m.moe.rule.sum_floor = 0.5;  // nothing is renormalized
  m.moe.balance = model::Balance::kSequence;
  m.moe.z_coef = 1e-3;
  EXPECT_THAT(obstacles(qwen, m), IsEmpty());
  m.moe.rule.renormalize = true;
  EXPECT_THAT(obstacles(qwen, m), Contains(HasSubstr("moe.sum_floor = 0.5")));
  ModelConfig mixtral = read_golden("mixtral").model;
  mixtral.d_ff = 99;  // no layer has it
  EXPECT_THAT(obstacles(testing::family("mixtral"), mixtral), IsEmpty());
  mixtral.moe.dense_layers = {0};
  EXPECT_THAT(obstacles(testing::family("mixtral"), mixtral), Contains(HasSubstr("moe.dense_layers")));
  mixtral.moe = {};
  EXPECT_EQ(choose_family(mixtral, nullptr).model_type, "llama");

  // ERNIE says its layers with experts by the first, the last and an interval.
  ModelConfig ernie = read_golden("ernie4_5_moe", {{"num_hidden_layers", 8},
                                                   {"moe_layer_start_index", 0},
                                                   {"moe_layer_end_index", 7},
                                                   {"moe_layer_interval", 2}})
                          .model;
  for (const Cycle& dense : {Cycle{}, {7}, {1, 7}, {5, 7}, {1, 3, 4}, {1, 3, 5}}) {
    ernie.moe.dense_layers = dense;
    EXPECT_THAT(obstacles(testing::family("ernie4_5_moe"), ernie), IsEmpty()) << ernie.expert_layers();
  }
  ernie.moe.dense_layers = {3};
  EXPECT_THAT(obstacles(testing::family("ernie4_5_moe"), ernie), Contains(HasSubstr("moe.dense_layers")));

  // Biases that the class always has.
  ModelConfig gpt = read_golden("gpt_oss").model;
  gpt.bias.ffn = gpt.moe.router_bias = false;
  const Family& family = choose_family(gpt, nullptr);
  EXPECT_EQ(family.model_type, "gpt_oss");
  const ModelConfig whole = completed(family, gpt);
  EXPECT_EQ(whole, read_golden("gpt_oss").model);
  EXPECT_TRUE(is_completion(gpt, "blocks.1.moe.router.bias"));
  EXPECT_TRUE(is_completion(gpt, "blocks.1.moe.experts.3.up.bias"));
  EXPECT_FALSE(is_completion(gpt, "blocks.1.moe.router.weight"));
  EXPECT_FALSE(is_completion(gpt, "blocks.1.attn.q.bias"));

  // The base of layers that rotate is that of base_cycle.
  ModelConfig llama = read_golden("llama4_text").model;
  llama.rope.base = 10000;
  EXPECT_THAT(obstacles(testing::family("llama4_text"), llama), IsEmpty());
}

TEST(ExpertClasses, RefusedByTheKey) {
  const auto expect = [](const char* folder, const json& changes, const char* text) {
    EXPECT_THAT(testing::error_of([&] { read_golden(folder, changes); }).what(), HasSubstr(text)) << folder;
  };
  expect("mixtral", {{"num_experts_per_tok", 5}}, "moe.top_k = 5");
  expect("mixtral", {{"num_local_experts", 5000}}, "num_local_experts = 5000: expected at most 4096");
  expect("mixtral", {{"num_experts", 3}}, "are two names of one value");
  expect("mixtral", {{"router_jitter_noise", 0.1}}, "router_jitter_noise = 0.1");
  expect("mixtral", {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types");
  expect("qwen2_moe", {{"num_experts", 0}}, "num_experts = 0");
  expect("qwen2_moe", {{"mlp_only_layers", {0, 1}}}, "expected at least one layer with experts");
  expect("qwen2_moe", {{"mlp_only_layers", 1}}, "mlp_only_layers = 1: expected a list of layers");
  expect("qwen2_moe", {{"decoder_sparse_step", 0}}, "decoder_sparse_step");
  expect("qwen2_moe", {{"layer_types", {"sliding_attention", "full_attention"}}}, "sliding_window is not set");
  expect("qwen2_moe", {{"num_local_experts", 5}}, "num_local_experts");
  expect("qwen3_moe", {{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types");
  expect("qwen3_moe", {{"shared_expert_intermediate_size", 8}}, "shared_expert_intermediate_size");
  expect("olmoe", {{"head_dim", 8}}, "head_dim = 8");
  expect("olmoe", {{"clip_qkv", -1.0}}, "attn.clip_qkv");
  expect("granitemoe", {{"mlp_bias", true}}, "mlp_bias");
  expect("granitemoe", {{"shared_intermediate_size", 8}}, "shared_intermediate_size");
  expect("deepseek_v2", {{"-num_experts_per_tok", 0}}, "num_experts_per_tok");
  expect("deepseek_v2", {{"topk_method", "noaux_tc"}}, "topk_method = \"noaux_tc\"");
  expect("deepseek_v2", {{"topk_method", "group_limited_greedy"}}, "n_group and topk_group");
  expect("deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", 4}, {"topk_group", 2}}, "moe.groups = 4");
  expect("deepseek_v2", {{"topk_method", "group_limited_greedy"}, {"n_group", 6}, {"topk_group", 1}},
         "moe.top_groups = 1");
  expect("deepseek_v2", {{"mlp_bias", true}}, "mlp_bias");
  expect("deepseek_v2", {{"n_shared_experts", 0}}, "n_shared_experts");
  expect("deepseek_v2", {{"first_k_dense_replace", -1}}, "first_k_dense_replace");
  expect("deepseek_v2", {{"scoring_func", "sigmoid"}}, "scoring_func");
  expect("deepseek_v2", {{"moe_layer_freq", 2}}, "moe_layer_freq");
  expect("deepseek_v3", {{"topk_method", "greedy"}}, "topk_method = \"greedy\"");
  expect("deepseek_v3", {{"scoring_func", "softmax"}}, "scoring_func");
  expect("deepseek_v3", {{"n_group", 8}, {"topk_group", 3}}, "moe.group_score = \"top_two\"");
  expect("deepseek_v3", {{"n_shared_experts", 0}}, "n_shared_experts");
  expect("glm4_moe", {{"n_group", 4}, {"topk_group", 1}}, "moe.groups = 4");
  expect("ernie4_5_moe", {{"use_bias", true}}, "use_bias");
  expect("ernie4_5_moe", {{"moe_layer_start_index", -1}}, "moe_layer_start_index");
  for (const char* size : {"-num_experts", "-top_k_experts", "-moe_intermediate_size"})
    expect("gemma4_moe", {{size, 0}}, "enable_moe_block = true: expected the sizes num_experts");
  expect("gpt_oss", {{"swiglu_alpha", 1.5}}, "swiglu_alpha");
  expect("gpt_oss", {{"experts_per_token", 4}}, "experts_per_token");
  expect("gpt_oss", {{"rope_scaling", nullptr}}, "rope_scaling = null");
  expect("gpt_oss", {{"quantization_config", {{"quant_method", "mxfp4"}}}}, "quantization_config");
  expect("llama4_text", {{"attention_chunk_size", nullptr}}, "attention_chunk_size");
  expect("llama4_text", {{"layer_types", {"chunked_attention"}}}, "layer_types");
  expect("llama4_text", {{"layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}}},
         "layer_types");
  expect("llama4_text", {{"no_rope_layers", {1, 1}}}, "no_rope_layers");
  expect("llama4_text", {{"moe_layers", {"all"}}}, "moe_layers");
}

}  // namespace
}  // namespace ashlar::hf
