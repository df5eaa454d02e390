// Keys of published files that change no logit are read, and only at the values at which they change none.
#include "launch/hf/neutral_keys.h"

#include <nlohmann/json.hpp>
#include <set>

#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json llama() { return json::parse(testing::slurp(testing::golden_dir("llama") / "config.json")); }

/// A file with these keys and no others but sizes, and the model that it is read as.
model::ModelConfig model_of(const json& config) { return parse_hf_config(config.dump(), "config.json").model; }

TEST(NeutralKeys, EveryOneIsReadAtItsValueAndIsTheSameModel) {
  const json usual = llama();
  std::set<std::string_view> seen;
  for (const NeutralKey& neutral : neutral_keys()) {
    SCOPED_TRACE(neutral.key);
    EXPECT_TRUE(seen.insert(neutral.key).second) << "twice";
    const std::string key = neutral.key, only = neutral.only;
    if (usual.contains(key)) continue;
    json with = usual;
    with[key] = only.empty() ? json(7) : json::parse(only);
    EXPECT_EQ(model_of(with), model_of(usual));
    with[key] = nullptr;
    EXPECT_EQ(model_of(with), model_of(usual));
    if (only.empty()) continue;
    with[key] = "another";
    const Error error = testing::error_of([&] { model_of(with); });
    EXPECT_THAT(error.what(), HasSubstr(key +
                                        " = \"another\": LlamaForCausalLM is not known to read this key: expected "
                                        "no such key, or the value " +
                                        only + ", which has no effect"));
  }
}

/// What a class reads itself is never swallowed by the table.
TEST(NeutralKeys, WhatAClassReadsKeepsItsMeaning) {
  json gpt2 = json::parse(testing::slurp(testing::golden_dir("gpt2") / "config.json"));
  const model::ModelConfig usual = model_of(gpt2);
  gpt2["scale_attn_weights"] = false;
  EXPECT_NE(model_of(gpt2).attn.scale, usual.attn.scale);
}

struct Published {
  const char *golden, *keys;
};

// Keys as the published files of these models have them, upon small models of their classes.
TEST(NeutralKeys, OfPublishedFiles) {
  const Published rows[] = {
      {"gpt2", R"({"n_special": 0, "predict_special_tokens": true, "_num_labels": 1})"},
      {"qwen2", R"({"use_mrope": false, "use_sliding_window": false})"},
      {"starcoder2", R"({"attention_softmax_in_fp32": true, "scale_attention_softmax_in_fp32": true,
         "scale_attn_weights": true, "layer_norm_epsilon": 1e-05, "activation_function": "gelu", "mlp_type": "default", "norm_type": "layer_norm"})"},
      {"phi3", R"({"full_attn_mod": 1, "interpolate_factor": 1, "mlp_bias": false})"},
      {"falcon7", R"({"n_layer": 3, "n_head": 4})"},
      {"llama", R"({"is_llama_config": true, "rope_interleaved": false,
         "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}})"},
      {"opt_post", R"({"learned_embeddings": true, "scale_embeddings": false})"},
      {"cohere_qk", R"({"model_max_length": 131072, "pretraining_tp": 1})"},
      {"mpt", R"({"architectures": ["MPTForCausalLM"], "init_config": {"emb_init_std": null, "init_std": 0.02,
         "name": "kaiming_normal_", "verbose": 0}, "tokenizer_name": "EleutherAI/gpt-neox-20b"})"},
      {"phi", R"({"attention_bias": false, "rotary_dim": 32})"},
      {"gptj", R"({"rope_scaling": {"rope_type": "gptj"}})"},
      {"llama", R"({"internal_version": "7b-alpha-v2.33.0.30"})"},
      {"exaone4", R"({"sliding_window": null, "sliding_window_pattern": 0, "layer_types": null})"},
      {"mixtral", R"({"router_aux_loss_coef": 0.02, "output_router_logits": false, "sliding_window": null})"},
      {"qwen2_moe", R"({"use_sliding_window": false, "sliding_window": 32768, "max_window_layers": 21,
         "decoder_sparse_step": 1})"},
      {"qwen3_moe", R"({"max_window_layers": 48, "sliding_window": null, "use_sliding_window": false})"},
      {"deepseek_v2", R"({"aux_loss_alpha": 0.001, "auto_map": {"AutoConfig": "x"}, "ep_size": 1, "moe_layer_freq": 1,
         "n_group": 1, "topk_group": 1, "scoring_func": "softmax", "seq_aux": true, "pretraining_tp": 1})"},
      {"gpt_oss", R"({"experts_per_token": 2, "initial_context_length": 4096, "swiglu_limit": 7.0,
         "router_aux_loss_coef": 0.9})"},
      {"llama4_text", R"({"for_llm_compressor": false, "attn_temperature_tuning": 4, "no_rope_layers": [],
         "cache_implementation": "hybrid"})"},
  };
  for (const Published& row : rows) {
    SCOPED_TRACE(row.golden);
    json config = json::parse(testing::slurp(testing::golden_dir(row.golden) / "config.json"));
    config.update(json::parse(row.keys));
    EXPECT_NO_THROW(model_of(config));
  }
}

TEST(NeutralKeys, AnotherRotationOfGptJIsRefused) {
  json config = json::parse(testing::slurp(testing::golden_dir("gptj") / "config.json"));
  const model::ModelConfig usual = model_of(config);
  config["rope_scaling"] = {{"type", "gptj"}};
  EXPECT_EQ(model_of(config), usual);
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2.0}};
  EXPECT_THAT(testing::error_of([&] { model_of(config); }).what(), HasSubstr("rope_scaling"));
}

TEST(NeutralKeys, HeadsOfGemma4NeedNotDivideTheWidth) {
  json config = json::parse(testing::slurp(testing::golden_dir("gemma4") / "config.json"));
  model::ModelConfig model = model_of(config);
  model.n_heads = 2 * model.n_kv_heads;
  while (model.d_model % model.n_heads == 0) model.n_heads += model.n_kv_heads;
  EXPECT_THAT(obstacles(testing::family("gemma4_text"), model), ::testing::IsEmpty());
}

}  // namespace
}  // namespace ashlar::hf
