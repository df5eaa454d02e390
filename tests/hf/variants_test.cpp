// Classes that are GPT, GPT-NeoX or Llama but for an axis or two: what is read of their keys, both ways, and refused.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::read_type;

/// Written with its table and read again.
ModelConfig again(const HfConfig& config) { return parse_hf_config(write_hf_config(config, "float32"), "again").model; }

TEST(FamilyVariants, OpenAiGptHasNormsBehindItsBranchesAndNoneAtItsEnd) {
  const ModelConfig m = read_type("openai-gpt", {{"n_embd", 24}, {"n_head", 4}}).model;
  EXPECT_EQ(m.norm.placement, model::NormPlacement::kPost);
  EXPECT_FALSE(m.norm.final);
  EXPECT_EQ(m.norm.affine, model::NormAffine::kScaleBias);
  EXPECT_EQ(m.pos, (model::PosConfig{model::PosType::kLearned, 512}));
  EXPECT_EQ(m.d_ff, 96);
  EXPECT_TRUE(m.tied);
  EXPECT_EQ(m.bias, (model::BiasConfig{true, true, true, false}));
  EXPECT_EQ(m.dropout, (model::DropoutConfig{0.1, 0.1, 0.1}));
  EXPECT_EQ(m.ffn, (model::FfnConfig{Activation::kGeluTanh, false})) << "gelu is the tanh form there";
  EXPECT_EQ(read_type("openai-gpt", {{"hidden_size", 24}, {"num_attention_heads", 4}, {"num_hidden_layers", 3}})
                .model.d_model,
            24);
  for (const auto& [name, act] : {std::pair{"relu", Activation::kRelu}, {"silu", Activation::kSilu}}) {
    const HfConfig config = read_type("openai-gpt", {{"afn", name}});
    EXPECT_EQ(config.model.ffn.act, act);
    EXPECT_EQ(again(config), config.model);
  }
  EXPECT_EQ(read_type("openai-gpt", {{"afn", "swish"}}).model.ffn.act, Activation::kSilu);
}

TEST(FamilyVariants, OptMayHaveNormsBehindItsBranches) {
  const HfConfig post = read_type("opt", {{"do_layer_norm_before", false}, {"word_embed_proj_dim", 512}});
  EXPECT_EQ(post.model.norm.placement, model::NormPlacement::kPost);
  EXPECT_FALSE(post.model.norm.final);
  EXPECT_EQ(post.model.embed_dim, 512);
  EXPECT_EQ(again(post), post.model);
  // The key of the final norm changes nothing there.
  EXPECT_EQ(
      read_type("opt",
                {{"do_layer_norm_before", false}, {"word_embed_proj_dim", 512}, {"_remove_final_layer_norm", true}})
          .model,
      post.model);
  const HfConfig pre = read_type("opt", {{"_remove_final_layer_norm", true}});
  EXPECT_EQ(pre.model.norm.placement, model::NormPlacement::kPre);
  EXPECT_FALSE(pre.model.norm.final);
  EXPECT_EQ(again(pre), pre.model);
}

TEST(FamilyVariants, BloomHasANormBehindTheEmbeddingAndAlibi) {
  const HfConfig config =
      read_type("bloom", {{"hidden_size", 48}, {"n_head", 6}, {"n_layer", 3}, {"hidden_dropout", 0.1}});
  const ModelConfig& m = config.model;
  EXPECT_TRUE(m.norm.embed && m.norm.final && m.tied);
  EXPECT_EQ(m.pos.type, model::PosType::kAlibi);
  EXPECT_EQ(m.pos.alibi_scale, 1);
  EXPECT_EQ(m.rope, model::RopeConfig{});
  EXPECT_EQ(m.ffn, (model::FfnConfig{Activation::kGeluTanh, false}));
  EXPECT_EQ(m.d_ff, 192);
  EXPECT_EQ(m.dropout, (model::DropoutConfig{0.0, 0.0, 0.1}));
  EXPECT_EQ(again(config), m);
  const HfConfig usual = read_type("bloom");
  EXPECT_EQ(usual.model.vocab_size, 250880);
  EXPECT_EQ(usual.model.d_model, 64);
  EXPECT_EQ(usual.model.n_layers, 2);
  EXPECT_EQ(usual.model.n_heads, 8);
  EXPECT_EQ(usual.model.norm.variant.eps, 1e-5);
  EXPECT_EQ(usual.extras.max_positions, 2048);
  // As the published files have it, n_inner null or not.
  EXPECT_EQ(read_type("bloom", {{"n_embed", 48},
                                {"num_attention_heads", 6},
                                {"num_hidden_layers", 3},
                                {"n_inner", 7},
                                {"hidden_dropout", 0.1},
                                {"offset_alibi", 100},
                                {"masked_softmax_fusion", true},
                                {"seq_length", 2048}})
                .model,
            m);
}

TEST(FamilyVariants, PersimmonNormsQueriesAndKeysWithBiases) {
  const HfConfig config = read_type("persimmon", {{"layer_norm_eps", 3e-4}});
  EXPECT_EQ(config.model.qk_norm, (model::QkNormConfig{model::QkNorm::kHead, NormType::kLayerNorm, true,
                                                       model::QkNormOrder::kBeforeRope, 3e-4}));
  EXPECT_EQ(config.model.rope.dims, 32);
  EXPECT_EQ(config.model.rope.base, 25000);
  EXPECT_EQ(config.model.bias, (model::BiasConfig{true, true, true, false}));
  EXPECT_EQ(again(config), config.model);
  const HfConfig plain = read_type("persimmon", {{"qk_layernorm", false}, {"num_key_value_heads", 64}});
  EXPECT_EQ(plain.model.qk_norm.kind, model::QkNorm::kNone);
  EXPECT_EQ(again(plain), plain.model);
}

TEST(FamilyVariants, NanoChatHasNormsWithoutGains) {
  const HfConfig config = read_type("nanochat", {{"rms_norm_eps", 3e-4}, {"num_key_value_heads", 2}});
  const ModelConfig& m = config.model;
  EXPECT_EQ(m.norm.affine, model::NormAffine::kNone);
  EXPECT_TRUE(m.norm.embed && m.norm.final && m.rope.reversed);
  EXPECT_EQ(m.qk_norm.kind, model::QkNorm::kL2);
  EXPECT_EQ(m.qk_norm.order, model::QkNormOrder::kAfterRope);
  EXPECT_EQ(m.qk_norm.eps, 3e-4);
  EXPECT_EQ(m.softcap, 15);
  EXPECT_EQ(m.ffn, (model::FfnConfig{Activation::kRelu2, false}));
  EXPECT_EQ(m.n_kv_heads, 2);
  EXPECT_EQ(again(config), m);
  const HfConfig uncapped = read_type("nanochat", {{"final_logit_softcapping", nullptr}});
  EXPECT_EQ(uncapped.model.softcap, std::nullopt);
  EXPECT_EQ(again(uncapped), uncapped.model);
  EXPECT_EQ(read_type("nanochat", {{"final_logit_softcapping", 30.0}}).model.softcap, 30);
}

TEST(FamilyVariants, ChameleonTakesTheLogitsOfImageTokensAway) {
  const json map = {{"<image>", 4}, {"IMGIMGA00002I", 9}, {"IMGIMGA00001I", 5}, {"IMG", 7}};
  const HfConfig config = read_type("chameleon", {{"vocabulary_map", map}, {"num_key_value_heads", 8}});
  EXPECT_EQ(config.model.masked_ids, (std::vector<int64_t>{5, 9}));
  EXPECT_EQ(config.model.qk_norm, (model::QkNormConfig{model::QkNorm::kHeadPer, NormType::kLayerNorm, true,
                                                       model::QkNormOrder::kBeforeRope, 1e-5}));
  EXPECT_EQ(config.model.norm.placement, model::NormPlacement::kPre);
  EXPECT_EQ(again(config), config.model);
  // The class makes the number of an image token from its name, letters for digits.
  const json written = json::parse(write_hf_config(config, "float32"));
  EXPECT_EQ(written["vocabulary_map"], (json{{"IMGIMGAZ", 5}, {"IMGIMGBZ", 9}}));
  const HfConfig swin = read_type("chameleon", {{"swin_norm", true}});
  EXPECT_EQ(swin.model.norm.placement, model::NormPlacement::kOutput);
  EXPECT_TRUE(swin.model.masked_ids.empty());
  EXPECT_EQ(again(swin), swin.model);
  EXPECT_EQ(json::parse(write_hf_config(swin, "float32"))["vocabulary_map"], json::object()) << "null is no map";
}

/// Of the image tokenizer nothing is read, which is said; the norms of a swin_norm file stand under the same names.
TEST(FamilyVariants, ChameleonsNamesInBothPlacements) {
  for (const bool swin : {false, true}) {
    const HfConfig config = read_type("chameleon", {{"swin_norm", swin}, {"num_hidden_layers", 1}});
    std::map<std::string, std::string> ours;
    for (const TensorMapping& mapping : tensor_mappings(*config.family, config.model))
      ours[mapping.parts[0].name] = mapping.hf_name;
    const std::string kind = swin ? "_out" : "";
    EXPECT_EQ(ours["blocks.0.norm1" + kind + ".weight"], "model.layers.0.input_layernorm.weight");
    EXPECT_EQ(ours["blocks.0.norm2" + kind + ".weight"], "model.layers.0.post_attention_layernorm.weight");
  }
  EXPECT_TRUE(is_other_part(testing::family("chameleon"), "model.vqmodel.encoder.conv_in.weight"));
  EXPECT_FALSE(is_other_part(testing::family("llama"), "model.vqmodel.encoder.conv_in.weight"));
  EXPECT_FALSE(is_other_part(testing::family("chameleon"), "model.norm.weight"));
}

TEST(FamilyVariants, Ministral3HasATemperatureBesideItsScaling) {
  const json dict = {{"rope_type", "yarn"},
                     {"rope_theta", 1e6},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 16},
                     {"max_position_embeddings", 64},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"llama_4_scaling_beta", 0.25}};
  const HfConfig config = read_type("ministral3", {{"rope_parameters", dict}, {"sliding_window", 32}});
  const ModelConfig& m = config.model;
  EXPECT_EQ(m.attn.temperature_beta, 0.25);
  EXPECT_EQ(m.attn.temperature_positions, 16);
  EXPECT_EQ(m.rope.attention_factor, 1) << "equal mscales cancel";
  EXPECT_EQ(m.rope.original_positions, 16);
  EXPECT_EQ(m.attn.window_cycle, (std::vector<int64_t>{32}));
  EXPECT_EQ(again(config), m);
  // No dictionary: that of the class.
  const HfConfig usual = read_type("ministral3");
  EXPECT_EQ(usual.model.rope.scaling, model::RopeScaling::kYarn);
  EXPECT_EQ(usual.model.rope.factor, 16);
  EXPECT_EQ(usual.model.rope.base, 1e6);
  EXPECT_EQ(usual.model.attn.temperature_positions, 16384);
  EXPECT_THAT(usual.notes, ::testing::Contains(HasSubstr("rope_parameters is absent")));
  EXPECT_EQ(again(usual), usual.model);
  // Without a temperature, and one without a scaling.
  json off = dict, plain = {{"rope_type", "default"}, {"original_max_position_embeddings", 32}};
  off["llama_4_scaling_beta"] = 0;
  plain["llama_4_scaling_beta"] = 0.5;
  EXPECT_EQ(read_type("ministral3", {{"rope_parameters", off}}).model.attn.temperature_positions, 0);
  const HfConfig unscaled = read_type("ministral3", {{"rope_parameters", plain}, {"rope_theta", 1e5}});
  EXPECT_EQ(unscaled.model.rope.scaling, model::RopeScaling::kNone);
  EXPECT_EQ(unscaled.model.attn.temperature_positions, 32);
  EXPECT_EQ(again(unscaled), unscaled.model);
  // A temperature of other positions than the scaling's has no word.
  ModelConfig apart = m;
  apart.attn.temperature_positions = 8;
  EXPECT_THAT(obstacles(testing::family("ministral3"), apart),
              ::testing::ElementsAre(HasSubstr("attn.temperature_positions = 8: Ministral3ForCausalLM requires 16")));
  apart.attn.temperature_beta = 0;
  EXPECT_TRUE(obstacles(testing::family("ministral3"), apart).empty()) << "it is none";
}

TEST(FamilyVariants, BaichuanWithoutPositionsHasAlibi) {
  const HfConfig config =
      read_type("baichuan",
                {{"z_loss_weight", 0}, {"model_max_length", 4096}, {"hidden_size", 5120}, {"num_attention_heads", 40}});
  EXPECT_EQ(config.model.pos.type, model::PosType::kAlibi);
  EXPECT_EQ(config.model.rope, model::RopeConfig{});
  EXPECT_EQ(config.extras.max_positions, 4096);
  EXPECT_TRUE(config.model.norm_rows);
  const json written = json::parse(write_hf_config(config, "float32"));
  EXPECT_FALSE(written.contains("max_position_embeddings"));
  EXPECT_EQ(again(config), config.model);
  const HfConfig turned = read_type("baichuan", {{"z_loss_weight", 0}, {"max_position_embeddings", 4096}});
  EXPECT_EQ(turned.model.pos.type, model::PosType::kRope);
  EXPECT_EQ(turned.model.rope.dims, 128);
  EXPECT_EQ(again(turned), turned.model);
}

struct RefusedKeys {
  const char* type;
  const char* keys;
  const char* names;  ///< what the error must name
};

TEST(FamilyVariants, RefusedByTheKey) {
  const RefusedKeys table[] = {
      {"openai-gpt", R"({"afn":"gelu_new"})", "afn = \"gelu_new\""},
      {"openai-gpt", R"({"n_inner":100})", "n_inner"},
      {"openai-gpt", R"({"n_embd":24,"hidden_size":48})", "two names of one value"},
      {"bloom", R"({"apply_residual_connection_post_layernorm":true})", "apply_residual_connection_post_layernorm"},
      {"bloom", R"({"rope_theta":10000.0})", "rope_theta"},
      {"bloom", R"({"n_layer":2,"num_hidden_layers":3})", "two names of one value"},
      {"persimmon", R"({"hidden_dropout":0.1})", "hidden_dropout"},
      {"persimmon", R"({"num_key_value_heads":8})", "num_key_value_heads"},
      {"persimmon", R"({"partial_rotary_factor":0.55,"num_attention_heads":32,"hidden_size":64})", "rope.dims"},
      {"nanochat", R"({"mlp_bias":true})", "mlp_bias"},
      {"nanochat", R"({"final_logit_softcapping":-1.0})", "head.softcap"},
      {"chameleon", R"({"vocabulary_map":["IMGIMGA"]})", "vocabulary_map"},
      {"chameleon", R"({"vocabulary_map":{"IMGIMGA":70000}})", "70000"},
      {"chameleon", R"({"head_dim":64})", "head_dim"},
      {"ministral3", R"({"rope_parameters":{"rope_type":"default"}})", "llama_4_scaling_beta = (absent)"},
      {"ministral3", R"({"rope_parameters":{"rope_type":"default","llama_4_scaling_beta":0.1}})",
       "original_max_position_embeddings = (absent)"},
      {"llama", R"({"rope_parameters":{"rope_type":"default","llama_4_scaling_beta":0.1}})", "llama_4_scaling_beta"},
      {"baichuan", R"({"z_loss_weight":0,"attention_dropout":0.1})", "attention_dropout"},
  };
  for (const RefusedKeys& row : table) {
    SCOPED_TRACE(std::string(row.type) + " " + row.keys);
    const Error error = testing::error_of([&] { read_type(row.type, json::parse(row.keys)); });
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr(row.names));
  }
}

/// Models that one class has and its neighbours have not: the class is found, and the axis named where it is asked of
/// another.
TEST(FamilyVariants, ExportFindsTheClass) {
  const auto chosen = [](const HfConfig& config) { return choose_family(config.model, nullptr).model_type; };
  EXPECT_EQ(chosen(read_type("openai-gpt")), "openai-gpt");
  EXPECT_EQ(chosen(read_type("opt", {{"do_layer_norm_before", false}})), "opt");
  EXPECT_EQ(chosen(read_type("bloom")), "bloom");
  EXPECT_EQ(chosen(read_type("persimmon")), "persimmon");
  EXPECT_EQ(chosen(read_type("nanochat")), "nanochat");
  EXPECT_EQ(chosen(read_type("chameleon")), "chameleon");
  EXPECT_EQ(chosen(read_type("ministral3")), "ministral3");
  EXPECT_EQ(chosen(read_type("baichuan", {{"z_loss_weight", 0}, {"model_max_length", 4096}})), "baichuan");
  EXPECT_THAT(obstacles(testing::family("gpt2"), read_type("openai-gpt").model),
              ::testing::Contains(HasSubstr("norm.placement = post: GPT2LMHeadModel requires pre")));
  EXPECT_THAT(obstacles(testing::family("mistral"), read_type("ministral3").model),
              ::testing::Contains(HasSubstr("attn.temperature_beta = 0.1: MistralForCausalLM requires 0")));
}

}  // namespace
}  // namespace ashlar::hf
