// Classes with experts: what is read of their files, both ways, in each form that experts have in files, and what is
// refused.
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
using testing::Stored;
using testing::StoredModel;
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
                                                            .renormalize = false}));
  EXPECT_EQ(read_golden("qwen2_moe").model.bias, (model::BiasConfig{.qkv = true}));
  EXPECT_EQ(read_golden("qwen3_moe").model.moe,
            experts_of({.experts = 6, .top_k = 2, .d_ff = 14, .dense_layers = {0}, .renormalize = true}));
  EXPECT_EQ(read_golden("qwen3_moe").model.d_ff, 40);
  EXPECT_EQ(read_golden("olmoe").model.moe, experts_of({.experts = 6, .top_k = 2, .d_ff = 20, .renormalize = false}));
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
                                                              .renormalize = false,
                                                              .scale = 1.5}));
  MoeConfig v3 = experts_of({.experts = 8,
                             .top_k = 3,
                             .d_ff = 10,
                             .first_layer = 1,
                             .shared_d_ff = 10,
                             .score = RouterScore::kSigmoid,
                             .sum_eps = 1e-20,
                             .scale = 2.5,
                             .groups = 4,
                             .top_groups = 2,
                             .selection_bias = true});
  EXPECT_EQ(read_golden("deepseek_v3").model.moe, v3);
  EXPECT_EQ(read_golden("deepseek_v3").model.rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(read_golden("deepseek_v3").further_layers, 1);
  const ModelConfig glm = read_golden("glm4_moe").model;
  v3.experts = 6;
  v3.top_k = 2;
  v3.d_ff = v3.shared_d_ff = 12;
  v3.scale = 1.5;
  v3.groups = v3.top_groups = 1;
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
                                                               .sum_floor = 1e-12,
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
                                   .score = RouterScore::kSigmoid,
                                   .renormalize = false}));
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
  EXPECT_FALSE(moe("qwen3_moe", {{"-norm_topk_prob", 0}}).renormalize) << "the default of the class";
  EXPECT_TRUE(moe("qwen2_moe", {{"norm_topk_prob", true}}).renormalize);
  EXPECT_TRUE(moe("olmoe", {{"norm_topk_prob", true}}).renormalize);
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
  EXPECT_EQ(groups.groups, 3);
  EXPECT_EQ(groups.top_groups, 2);
  EXPECT_EQ(groups.group_score, GroupScore::kMax);
  EXPECT_EQ(moe("deepseek_v2", {{"n_group", 3}, {"topk_group", 2}}).groups, 1) << "greedy does not read them";
  EXPECT_EQ(moe("deepseek_v2", {{"-first_k_dense_replace", 0}}).first_layer, 0);
  EXPECT_EQ(moe("deepseek_v2", {{"n_shared_experts", 3}}).shared_d_ff, 36);
  EXPECT_THAT(read_golden("deepseek_v2", {{"norm_topk_prob", true}}).notes, Contains(HasSubstr("has no effect")));
  EXPECT_THAT(read_golden("mixtral", {{"output_router_logits", true}}).notes, Contains(HasSubstr("moe.balance_coef")));

  EXPECT_EQ(
      moe("deepseek_v3", {{"-n_group", 0}, {"-topk_group", 0}, {"num_experts_per_tok", 4}, {"n_routed_experts", 16}})
          .groups,
      8)
      << "the default of the class";
  EXPECT_EQ(moe("deepseek_v3", {{"-first_k_dense_replace", 0}, {"num_hidden_layers", 4}}).first_layer, 3);
  EXPECT_EQ(moe("glm4_moe", {{"n_group", 2}, {"topk_group", 1}}).group_score, GroupScore::kTopTwo);
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
  m.moe.sum_floor = 0.5;  // nothing is renormalized
  m.moe.balance = model::Balance::kSequence;
  m.moe.z_coef = 1e-3;
  EXPECT_THAT(obstacles(qwen, m), IsEmpty());
  m.moe.renormalize = true;
  EXPECT_THAT(obstacles(qwen, m), Contains(HasSubstr("moe.sum_floor = 0.5")));
  ModelConfig mixtral = read_golden("mixtral").model;
  mixtral.d_ff = 99;  // no layer has it
  EXPECT_THAT(obstacles(testing::family("mixtral"), mixtral), IsEmpty());
  mixtral.moe.dense_layers = {0};
  EXPECT_THAT(obstacles(testing::family("mixtral"), mixtral), Contains(HasSubstr("moe.dense_layers")));
  mixtral.moe = {};
  EXPECT_EQ(choose_family(mixtral, nullptr).model_type, "llama");

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
  expect("gemma4_moe", {{"-top_k_experts", 0}}, "enable_moe_block = true: expected the sizes num_experts");
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

/// Weights of a golden folder, changed.
class ExpertFolder {
 public:
  ExpertFolder(const std::string& folder, const std::function<void(StoredModel&)>& change) {
    StoredModel weights = testing::load_file(golden_dir(folder) / "model.safetensors");
    change(weights);
    testing::save_file(dir_.path() / "model.safetensors", weights);
    testing::spit(dir_.path() / "config.json", testing::slurp(golden_dir(folder) / "config.json"));
  }
  ImportedModel import() const { return import_hf(dir_.path()); }
  std::string error() const {
    return testing::error_of([&] { import(); }).what();
  }

 private:
  ashlar::testing::ScratchDir dir_;
};

void rename_tensor(StoredModel& m, const std::string& from, const std::string& to) {
  m[to] = m.at(from);
  m.erase(from);
}

/// The form of experts in a file, for the tensors of one layer: `each` + number + "." + gate, up, down.
struct PerExpert {
  std::string each, gate, up, down;
};

/// Puts the matrices of experts into tensors [experts, ...] of all of them, as transformers 5 has them in memory.
void fuse(StoredModel& m, const PerExpert& from, int64_t experts, const std::string& to) {
  Stored gate_up, down;
  for (int64_t e = 0; e < experts; ++e) {
    const auto take = [&](const std::string& name, Stored& into, int64_t times) {
      const std::string whole = str_cat(from.each, e, ".", name, ".weight");
      const Stored matrix = m.at(whole);
      m.erase(whole);
      into.shape = {experts, times * matrix.shape[0], matrix.shape[1]};
      into.bytes += matrix.bytes;
    };
    take(from.gate, gate_up, 2);
    take(from.up, gate_up, 2);
    take(from.down, down, 1);
  }
  m[to + "gate_up_proj"] = gate_up;
  m[to + "down_proj"] = down;
}

void expect_same_weights(ImportedModel& model, const char* folder) {
  ImportedModel plain = import_hf(golden_dir(folder));
  ASSERT_EQ(model.tensors().size(), plain.tensors().size());
  for (const io::TensorSpec& spec : plain.tensors())
    EXPECT_EQ(testing::read_tensor(model, spec.name), testing::read_tensor(plain, spec.name)) << spec.name;
}

TEST(ExpertForms, FusedFilesOfClassesWithATensorForEachExpert) {
  const PerExpert of_mixtral = {"block_sparse_moe.experts.", "w1", "w3", "w2"};
  const PerExpert of_qwen = {"mlp.experts.", "gate_proj", "up_proj", "down_proj"};
  const std::tuple<const char*, PerExpert, int64_t, std::string> files[] = {
      {"mixtral", of_mixtral, 4, "mlp.experts."},  {"mixtral", of_mixtral, 4, "block_sparse_moe.experts."},
      {"qwen2_moe", of_qwen, 5, "mlp.experts."},   {"qwen3_moe", of_qwen, 6, "mlp.experts."},
      {"olmoe", of_qwen, 6, "mlp.experts."},       {"deepseek_v2", of_qwen, 6, "mlp.experts."},
      {"deepseek_v3", of_qwen, 8, "mlp.experts."}, {"glm4_moe", of_qwen, 6, "mlp.experts."},
      {"ernie4_5_moe", of_qwen, 6, "mlp.experts."}};
  for (const auto& [folder, from, experts, to] : files) {
    SCOPED_TRACE(folder + (" " + to));
    const ModelConfig config = read_golden(folder).model;
    const ExpertFolder changed(folder, [&, from = from, experts = experts, to = to](StoredModel& m) {
      for (int64_t layer = 0; layer < config.n_layers; ++layer) {
        if (!config.has_experts(layer)) continue;
        const std::string block = str_cat("model.layers.", layer, ".");
        PerExpert of_layer = from;
        of_layer.each = block + from.each;
        fuse(m, of_layer, experts, block + to);
        if (to == "mlp.experts." && config.moe.d_ff == 28)
          rename_tensor(m, block + "block_sparse_moe.gate.weight", block + "mlp.gate.weight");
      }
    });
    ImportedModel model = changed.import();
    expect_same_weights(model, folder);
    // An export has the names of the published files.
    testing::ImportSource source(model);
    const ashlar::testing::ScratchDir out;
    testing::export_alone(model.config(), source, out.path() / "out");
    EXPECT_EQ(testing::slurp(out.path() / "out/model.safetensors"),
              testing::slurp(golden_dir(folder) / "model.safetensors"));
  }
}

// Blocks that predict further tokens are left out, as many as config.json says, and no other.
TEST(ExpertForms, FurtherBlocksAreLeftOut) {
  const auto with = [](const char* folder, const std::string& name) {
    return ExpertFolder(folder, [&](StoredModel& m) { m[name] = m.at("model.norm.weight"); });
  };
  for (const auto& [folder, name] : {std::pair{"deepseek_v3", "model.layers.2.eh_proj.weight"},
                                     {"glm4_moe", "model.layers.2.mlp.experts.0.up_proj.weight"},
                                     {"ernie4_5_moe", "model.mtp_block.0.self_attn.q_proj.weight"}}) {
    const ExpertFolder changed = with(folder, name);
    ImportedModel model = changed.import();
    EXPECT_THAT(model.notes(), Contains(HasSubstr("1 tensors of blocks that predict further tokens (MTP)"))) << folder;
    expect_same_weights(model, folder);
  }
  EXPECT_THAT(with("deepseek_v3", "model.layers.3.eh_proj.weight").error(), HasSubstr("unknown: 'model.layers.3."));
  EXPECT_THAT(with("qwen3_moe", "model.layers.2.eh_proj.weight").error(), HasSubstr("unknown: 'model.layers.2."));
}

// The class keeps the selection bias in fp32, whatever the dtype of the model.
TEST(ExpertForms, TheSelectionBiasStaysWide) {
  for (const char* folder : {"deepseek_v3", "ernie4_5_moe"}) {
    ImportedModel model = import_hf(golden_dir(folder));
    testing::ImportSource source(model);
    const ashlar::testing::ScratchDir out;
    testing::export_alone(model.config(), source, out.path() / "out", {.dtype = io::FileDType::kBF16});
    const io::SafetensorsReader before(golden_dir(folder) / "model.safetensors"),
        after(out.path() / "out/model.safetensors");
    int64_t biases = 0;
    for (const io::TensorEntry& tensor : after.tensors()) {
      const bool bias = tensor.name.ends_with("e_score_correction_bias");
      EXPECT_EQ(tensor.dtype, bias ? io::FileDType::kF32 : io::FileDType::kBF16) << tensor.name;
      if (!bias) continue;
      std::vector<std::byte> a(before.at(tensor.name).num_bytes()), b(tensor.num_bytes());
      before.read(before.at(tensor.name), a);
      after.read(tensor, b);
      EXPECT_TRUE(a == b) << tensor.name;
      ++biases;
    }
    EXPECT_EQ(biases, 1);
  }
}

TEST(ExpertForms, ATensorForEachExpertOfClassesThatFuseThem) {
  const std::pair<const char*, const char*> files[] = {
      {"granitemoe", "block_sparse_moe."}, {"gpt_oss", "mlp."}, {"llama4_text", "feed_forward."}};
  for (const auto& [folder, where] : files) {
    SCOPED_TRACE(folder);
    ImportedModel plain = import_hf(golden_dir(folder));
    const ExpertFolder changed(folder, [&, where = where](StoredModel& m) {
      std::erase_if(m, [](const auto& tensor) {
        return tensor.first.find(".experts.") != std::string::npos ||
               tensor.first.find("put_linear") != std::string::npos;
      });
      for (const io::TensorSpec& spec : plain.tensors()) {
        const size_t at = spec.name.find(".moe.experts.");
        if (at == std::string::npos) continue;
        std::string name = spec.name.substr(at + 5);  // experts.E.gate.weight
        name.insert(name.rfind('.'), "_proj");
        m[str_cat("model.layers.", spec.name.substr(7, at - 7), ".", where, name)] =
            Stored{spec.dtype, spec.shape, testing::read_tensor(plain, spec.name)};
      }
    });
    ImportedModel model = changed.import();
    expect_same_weights(model, folder);
  }
}

TEST(ExpertForms, NamesOfGraniteInMemory) {
  const ExpertFolder changed("granitemoe", [](StoredModel& m) {
    for (const char* layer : {"0", "1"}) {
      const std::string moe = str_cat("model.layers.", layer, ".block_sparse_moe.");
      rename_tensor(m, moe + "input_linear.weight", moe + "experts.gate_up_proj");
      rename_tensor(m, moe + "output_linear.weight", moe + "experts.down_proj");
      rename_tensor(m, moe + "router.layer.weight", moe + "router.weight");
    }
  });
  ImportedModel model = changed.import();
  expect_same_weights(model, "granitemoe");
}

// GraniteMoeShared: the shared expert's gate and up are one tensor, the gate's rows first.
TEST(ExpertForms, ASharedExpertOfGranite) {
  json config =
      testing::changed(testing::golden_config("granitemoe"), {{"model_type", "granitemoeshared"},
                                                              {"architectures", {"GraniteMoeSharedForCausalLM"}},
                                                              {"shared_intermediate_size", 10}});
  const ashlar::testing::ScratchDir dir;
  StoredModel weights = testing::load_file(golden_dir("granitemoe") / "model.safetensors");
  for (const char* layer : {"0", "1"}) {
    const std::string shared = str_cat("model.layers.", layer, ".shared_mlp.");
    std::vector<float> in(20 * 24), out(24 * 10);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    for (size_t i = 0; i < out.size(); ++i) out[i] = -static_cast<float>(i);
    const auto bytes = [](const std::vector<float>& v) {
      return std::string(reinterpret_cast<const char*>(v.data()), 4 * v.size());
    };
    weights[shared + "input_linear.weight"] = {io::FileDType::kF32, {20, 24}, bytes(in)};
    weights[shared + "output_linear.weight"] = {io::FileDType::kF32, {24, 10}, bytes(out)};
  }
  testing::save_file(dir.path() / "model.safetensors", weights);
  testing::spit(dir.path() / "config.json", config.dump());
  ImportedModel model = import_hf(dir.path());
  EXPECT_EQ(model.config().family->class_name, "GraniteMoeSharedForCausalLM");
  EXPECT_EQ(model.config().model.moe.shared_d_ff, 10);
  EXPECT_EQ(testing::floats(testing::read_tensor(model, "blocks.0.moe.shared.gate.weight"))[239], 239);
  EXPECT_EQ(testing::floats(testing::read_tensor(model, "blocks.0.moe.shared.up.weight"))[0], 240);
  EXPECT_EQ(testing::floats(testing::read_tensor(model, "blocks.1.moe.shared.down.weight"))[7], -7);
  testing::ImportSource source(model);
  testing::export_alone(model.config(), source, dir.path() / "out");
  EXPECT_EQ(testing::load_file(dir.path() / "out/model.safetensors"), weights);
  EXPECT_EQ(&choose_family(model.config().model, nullptr), &testing::family("granitemoeshared"));
  config["shared_intermediate_size"] = 11;
  testing::spit(dir.path() / "config.json", config.dump());
  EXPECT_THAT(testing::error_of([&] { import_hf(dir.path()); }).what(),
              HasSubstr("shared_mlp.input_linear.weight' is [20,24], expected [22,24]"));
}

TEST(ExpertForms, WithoutThePrefix) {
  for (const char* folder : {"mixtral", "gpt_oss"}) {
    const ExpertFolder changed(folder, [](StoredModel& m) {
      StoredModel plain;
      for (const auto& [name, tensor] : m) plain[name.starts_with("model.") ? name.substr(6) : name] = tensor;
      m = plain;
    });
    ImportedModel model = changed.import();
    expect_same_weights(model, folder);
  }
}

TEST(ExpertForms, AnExpertThatIsMissingOrTwiceIsNamed) {
  const std::string third = "model.layers.1.mlp.experts.3.";
  EXPECT_THAT(ExpertFolder("qwen3_moe", [&](StoredModel& m) { m.erase(third + "up_proj.weight"); }).error(),
              HasSubstr(str_cat("missing: '", third, "up_proj.weight'")));
  const auto gone = [&](StoredModel& m) {
    for (const char* matrix : {"gate", "up", "down"}) m.erase(str_cat(third, matrix, "_proj.weight"));
  };
  EXPECT_THAT(ExpertFolder("qwen3_moe", gone).error(),
              AllOf(HasSubstr(third + "gate_proj"), HasSubstr(third + "down_proj"), Not(HasSubstr("experts.2"))));
  // Beside the experts that have tensors of their own.
  const std::string fused = "model.layers.1.mlp.experts.down_proj";
  EXPECT_THAT(ExpertFolder("qwen3_moe", [&](StoredModel& m) { m[fused] = m.at(third + "down_proj.weight"); }).error(),
              AllOf(HasSubstr("experts that the files also have under other names: '" + fused + "'"),
                    Not(HasSubstr("unknown")), Not(HasSubstr("missing"))));
  const std::string of_gpt = "model.layers.0.mlp.experts.2.up_proj.weight";
  EXPECT_THAT(ExpertFolder("gpt_oss", [&](StoredModel& m) { m[of_gpt] = m.at("model.norm.weight"); }).error(),
              HasSubstr("experts that the files also have under other names: '" + of_gpt + "'"));
  // One more than the configuration has.
  const std::string seventh = "model.layers.1.mlp.experts.6.up_proj.weight";
  EXPECT_THAT(ExpertFolder("qwen3_moe", [&](StoredModel& m) { m[seventh] = m.at(third + "up_proj.weight"); }).error(),
              HasSubstr("unknown: '" + seventh + "'"));
  EXPECT_THAT(ExpertFolder("gpt_oss",
                           [](StoredModel& m) {
                             Stored& down = m.at("model.layers.1.mlp.experts.down_proj_bias");
                             down.shape[0] = 3;
                             down.bytes.resize(3 * 24 * 4);
                           })
                  .error(),
              HasSubstr("'model.layers.1.mlp.experts.down_proj_bias' is [3,24], expected [4,24]"));
}

TEST(ExpertForms, ARouterOfTheWrongWidthIsNamed) {
  EXPECT_THAT(ExpertFolder("olmoe",
                           [](StoredModel& m) {
                             Stored& gate = m.at("model.layers.0.mlp.gate.weight");
                             gate.shape[0] = 5;
                             gate.bytes.resize(5 * 24 * 4);
                           })
                  .error(),
              HasSubstr("'model.layers.0.mlp.gate.weight' is [5,24], expected [6,24]"));
}

// Windows of a few rows give the same file.
TEST(ExpertForms, ExportInSmallWindows) {
  for (const char* folder : {"gpt_oss", "granitemoe", "llama4_text"}) {
    ImportedModel model = import_hf(golden_dir(folder));
    testing::ImportSource source(model);
    const ashlar::testing::ScratchDir out;
    testing::export_alone(model.config(), source, out.path() / "out", {.window_bytes = 5 * 24 * 4});
    EXPECT_EQ(testing::slurp(out.path() / "out/model.safetensors"),
              testing::slurp(golden_dir(folder) / "model.safetensors"))
        << folder;
    EXPECT_LE(source.most_bytes(), size_t{5} * 24 * 4) << folder;
  }
}

TEST(ExpertForms, ANaNOfAnFp16RouterIsNamed) {
  ExpertFolder changed("olmoe", [](StoredModel& m) {
    Stored& gate = m.at("model.layers.1.mlp.gate.weight");
    gate.dtype = io::FileDType::kF16;
    gate.bytes.assign(static_cast<size_t>(2 * 6 * 24), '\0');
    const uint16_t nan = 0x7e00;
    std::memcpy(gate.bytes.data() + 2 * (3 * 24 + 5), &nan, 2);
  });
  ImportedModel model = changed.import();
  const Error error = testing::error_of([&] { testing::read_tensor(model, "blocks.1.moe.router.weight"); });
  EXPECT_EQ(error.code(), ExitCode::kNonFinite);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("model.layers.1.mlp.gate.weight"), HasSubstr("[3, 5]"), HasSubstr("nan")));
}

TEST(ExpertForms, ANonFiniteWeightIsNamedWithItsExpert) {
  ExpertFolder changed("gpt_oss", [](StoredModel& m) {
    const float nan = std::nanf("");
    // Expert 2, input 3, column 9 of 32: row 4 of its up matrix.
    std::memcpy(m.at("model.layers.1.mlp.experts.gate_up_proj").bytes.data() + 4 * ((2 * 24 + 3) * 32 + 9), &nan, 4);
  });
  ImportedModel model = changed.import();
  EXPECT_NO_THROW(testing::read_tensor(model, "blocks.1.moe.experts.2.gate.weight"));
  EXPECT_THAT(testing::error_of([&] { testing::read_tensor(model, "blocks.1.moe.experts.2.up.weight"); }).what(),
              AllOf(HasSubstr("model.layers.1.mlp.experts.gate_up_proj"), HasSubstr("experts.2.up.weight"),
                    HasSubstr("[4, 3]")));
}

}  // namespace
}  // namespace ashlar::hf
