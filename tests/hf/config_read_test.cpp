#include <cmath>
#include <nlohmann/json.hpp>

#include "parallel/model/parameter_count.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::read_golden;
using testing::read_type;

struct RefusedChange {
  const char* folder;
  const char* changes;
  const char* names;  ///< what the error must name
};

// Values that no axis covers, and contradictions: each refused by its key.
const RefusedChange kRefused[] = {
    {"gpt2", R"({"scale_attn_by_inverse_layer_idx":true})", "scale_attn_by_inverse_layer_idx = true"},
    {"gpt2", R"({"add_cross_attention":true})", "add_cross_attention"},
    {"gpt2", R"({"activation_function":"mish"})", "mish"},
    {"gpt2", R"({"activation_function":"gelu_10"})", "gelu_10"},
    {"gpt2", R"({"activation_function":3})", "activation_function"},
    {"gpt2", R"({"n_embd":50})", "expected a multiple of the number of heads, 4"},
    {"gpt2", R"({"n_embd":"48"})", "n_embd"},
    {"gpt2", R"({"n_embd":0})", "n_embd"},
    {"gpt2", R"({"n_embd":48.5})", "n_embd"},
    {"gpt2", R"({"n_embd":99999999999})", "n_embd"},
    {"gpt2", R"({"n_embd":null})", "n_embd"},
    {"gpt2", R"({"hidden_size":64})", "two names of one value"},
    {"gpt2", R"({"layer_norm_epsilon":-1})", "norm.eps"},
    {"gpt2", R"({"attn_pdrop":1.5})", "dropout.attn"},
    {"gpt2", R"({"head_dim":16})", "head_dim"},
    {"gpt2", R"({"quantization_config":{"bits":4}})", "quantization_config"},
    {"gpt2", R"({"pruned_heads":{"0":[1]}})", "pruned_heads"},
    {"gpt2", R"({"is_causal":false})", "is_causal"},
    {"gpt2", R"({"some_new_option":false})", "some_new_option"},
    {"gpt2", R"({"architectures":["GPT2ForSequenceClassification"]})", "GPT2ForSequenceClassification"},
    {"gpt2", R"({"architectures":["GPT2LMHeadModel","LlamaForCausalLM"]})", "architectures"},
    {"gpt2", R"({"model_type":"llama"})", "expected the same class"},
    {"gpt2", R"({"model_type":"bert","-architectures":0})", "bert"},
    {"gpt2", R"({"-model_type":0,"-architectures":0})", "neither"},
    {"gptj", R"({"rotary_dim":null})", "rotary_dim"},
    {"gptj", R"({"rotary_dim":5})", "rope.dims"},
    {"gptj", R"({"rotary_dim":16})", "rope.dims"},
    {"gptj", R"({"rope_theta":500000})", "rope_theta"},
    {"gpt_neox_serial", R"({"rope_theta":500000})", "rope_theta"},
    {"gpt_neox_serial", R"({"partial_rotary_factor":1.0})", "partial_rotary_factor"},
    {"gpt_neox_serial", R"({"rotary_pct":0.0})", "rotary_pct"},
    {"gpt_neox_serial", R"({"rotary_pct":1.5})", "rotary_pct"},
    {"gpt_neox_serial", R"({"rope_scaling":{"type":"linear"}})", "rope_scaling.factor = (absent)"},
    {"llama", R"({"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0}})",
     "rope_scaling.high_freq_factor = (absent)"},
    {"llama", R"({"rope_scaling":{"type":"dynamic","factor":2.0}})", "dynamic"},
    {"llama", R"({"rope_scaling":{"rope_type":"yarn","factor":2.0,"high_freq_factor":4.0}})",
     "rope_scaling.high_freq_factor"},
    {"llama", R"({"rope_scaling":{"rope_type":"default","factor":2.0}})", "rope_scaling.factor"},
    {"llama", R"({"rope_scaling":{"rope_theta":20000.0}})", "rope_theta"},
    {"llama", R"({"rope_scaling":5})", "rope_scaling"},
    {"llama_gqa_tied", R"({"rope_scaling":{"rope_theta":1.0}})", "two names of one value"},
    {"llama_gqa_tied", R"({"rope_parameters":{"full_attention":{"rope_theta":1e4}}})", "full_attention"},
    {"llama", R"({"num_key_value_heads":3})", "model.n_kv_heads"},
    {"llama", R"({"head_dim":600})", "model.head_dim"},
    {"llama", R"({"attn_logit_softcapping":30.0})", "attn_logit_softcapping"},
    {"llama", R"({"sliding_window":4096})", "sliding_window"},
    {"llama", R"({"tie_word_embeddings":"yes"})", "tie_word_embeddings"},
    {"llama", R"({"eos_token_id":"</s>"})", "eos_token_id"},
    {"qwen2", R"({"layer_types":["full_attention","sliding_attention","full_attention"]})", "layer_types"},
    {"qwen2", R"({"layer_types":["full_attention"]})", "a list of 3 strings, one for each layer"},
    {"phi", R"({"qk_layernorm":true})", "qk_layernorm"},
    {"phi3", R"({"sliding_window":16,"layer_types":["full_attention","sliding_attention","full_attention"]})",
     "does not read this key; remove layer_types"},
    {"phi3", R"({"sliding_window":0})", "sliding_window"},
    {"phi3", R"({"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]},"rope_parameters":null})",
     "rope.short_factor"},
    {"phi3", R"({"rope_scaling":{"type":"su"},"rope_parameters":null})", "rope_scaling.short_factor"},
    {"phi3", R"({"attention_bias":true})", "attention_bias"},
    {"stablelm", R"({"qk_layernorm":true})", "qk_layernorm"},
    {"stablelm", R"({"hidden_dropout":0.1})", "hidden_dropout"},
    {"falcon7", R"({"hidden_dropout":0.1})", "hidden_dropout"},
    {"falcon7", R"({"attention_dropout":0.1})", "attention_dropout"},
    {"falcon7", R"({"num_ln_in_parallel_attn":2})", "num_ln_in_parallel_attn"},
    {"falcon40", R"({"num_ln_in_parallel_attn":3})", "num_ln_in_parallel_attn"},
    {"falcon40", R"({"parallel_attn":false})", "parallel_attn"},
    {"falcon_rw", R"({"num_kv_heads":2})", "num_kv_heads"},
    {"falcon7", R"({"n_embed":64})", "two names of one value"},
};

TEST(HfConfigRead, RefusesByNameWhatNoAxisCovers) {
  for (const RefusedChange& row : kRefused) {
    SCOPED_TRACE(std::string(row.folder) + " " + row.changes);
    const Error error = testing::error_of([&] { read_golden(row.folder, json::parse(row.changes)); });
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr(row.names));
    EXPECT_THAT(error.what(), HasSubstr("config.json"));
  }
}

TEST(HfConfigRead, AllErrorsAtOnce) {
  const Error error = testing::error_of([&] {
    read_golden("gpt2", {{"n_embd", 0}, {"activation_function", "mish"}, {"mystery", 1}, {"bos_token_id", "x"}});
  });
  for (const char* key : {"n_embd", "mish", "mystery", "bos_token_id"}) EXPECT_THAT(error.what(), HasSubstr(key));
}

TEST(HfConfigRead, RefusesWhatIsNoConfig) {
  for (const char* text : {"", "[]", "{", "null", "{\"architectures\":5}", "{\"architectures\":[\"\\n\"]}"}) {
    EXPECT_EQ(testing::error_of([&] { parse_hf_config(text, "x"); }).code(), ExitCode::kInput) << text;
  }
}

TEST(HfConfigRead, AKeyTheUserVouchesForIsIgnored) {
  const std::string text = R"({"model_type":"gpt2","some_new_option":1})";
  EXPECT_NO_THROW(parse_hf_config(text, "x", {"some_new_option"}));
  EXPECT_EQ(testing::error_of([&] {
              parse_hf_config(text, "x", {"some_new_option", "other"});
            }).code(),
            ExitCode::kInput);
}

TEST(HfConfigRead, SupportedVariants) {
  EXPECT_EQ(read_golden("gpt2", {{"scale_attn_weights", false}}).model.attn.scale, 1.0);
  EXPECT_EQ(read_golden("gpt2", {{"n_inner", nullptr}}).model.d_ff, 192);
  EXPECT_EQ(read_golden("gpt2", {{"activation_function", "relu"}}).model.ffn.act, Activation::kRelu);
  EXPECT_EQ(read_golden("gpt2", {{"activation_function", "gelu"}}).model.ffn.act, Activation::kGeluErf);
  EXPECT_EQ(read_golden("gpt2", {{"activation_function", "relu2"}}).model.ffn.act, Activation::kRelu2);
  EXPECT_EQ(read_golden("gpt2", {{"activation_function", "quick_gelu"}}).model.ffn.act, Activation::kQuickGelu);
  EXPECT_EQ(read_golden("llama", {{"hidden_act", "linear"}}).model.ffn.act, Activation::kIdentity);
  EXPECT_EQ(read_golden("llama", {{"hidden_act", "sigmoid"}}).model.ffn.act, Activation::kSigmoid);
  EXPECT_EQ(read_golden("gpt2", {{"tie_word_embeddings", false}}).model.tied, false);
  EXPECT_EQ(read_golden("gpt2", {{"-tie_word_embeddings", 0}}).model.tied, true);
  EXPECT_EQ(read_golden("gpt2", {{"-n_embd", 0}, {"hidden_size", 64}}).model.d_model, 64);
  const auto dropped = read_golden("gpt2", {{"embd_pdrop", 0.1}, {"attn_pdrop", 0.2}, {"resid_pdrop", 0.3}});
  EXPECT_EQ(dropped.model.dropout, (model::DropoutConfig{0.1, 0.2, 0.3}));
  EXPECT_EQ(read_golden("gpt2", {{"-attn_pdrop", 0}}).model.dropout.attn, 0.1);

  const auto neox = read_golden("gpt_neox", {{"attention_bias", false}, {"hidden_dropout", 0.1}});
  EXPECT_EQ(neox.model.bias, (model::BiasConfig{false, false, true, false}));
  EXPECT_EQ(neox.model.dropout, (model::DropoutConfig{0.1, 0.0, 0.1}));
  EXPECT_EQ(read_golden("gpt_neox", {{"-use_parallel_residual", 0}}).model.block.topology, model::Topology::kParallel);
  // 0.25, the default, of 16 dimensions.
  EXPECT_EQ(read_golden("gpt_neox_serial", {{"-rotary_pct", 0}, {"num_attention_heads", 3}}).model.rope.dims, 4);

  EXPECT_EQ(read_golden("gptj", {{"-rotary_dim", 0}, {"n_head", 1}, {"n_embd", 64}}).model.rope.dims, 64);
  EXPECT_EQ(read_golden("llama", {{"-num_key_value_heads", 0}}).model.n_kv_heads, 4);
  EXPECT_EQ(read_golden("llama", {{"num_key_value_heads", nullptr}}).model.n_kv_heads, 4);
  EXPECT_EQ(read_golden("llama", {{"rope_scaling", {{"type", "default"}, {"rope_theta", 10000.0}}}}).model.rope.base,
            1e4);
  EXPECT_EQ(read_golden("llama", {{"eos_token_id", {1, 2}}}).extras.eos_token_ids, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(read_golden("llama", {{"attention_dropout", 0.25}}).model.dropout.attn, 0.25);
  // Whole heads rotate in this class whatever the file says; it is said, not hidden.
  const auto partial = read_golden("llama", {{"partial_rotary_factor", 0.5}});
  EXPECT_EQ(partial.model.rope.dims, 12);
  ASSERT_EQ(partial.notes.size(), 1U);
  EXPECT_THAT(partial.notes[0], HasSubstr("partial_rotary_factor"));

  // Full attention, spelt with a window that no layer uses.
  EXPECT_NO_THROW(read_golden("qwen2", {{"use_sliding_window", true}, {"sliding_window", nullptr}}));
  EXPECT_NO_THROW(
      read_golden("qwen2", {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 3}}));
  EXPECT_NO_THROW(read_golden("qwen2", {{"sliding_window", 4096}}));
  EXPECT_EQ(read_golden("qwen2", {{"head_dim", 16}}).model.head_dim, 16);
  // Windows: layers from max_window_layers on, or those that layer_types names, where they are switched on.
  const auto cycle = [&](const char* folder, const json& changes) {
    return read_golden(folder, changes).model.attn.window_cycle;
  };
  using Cycle = std::vector<int64_t>;
  EXPECT_EQ(
      cycle("qwen2",
            {{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 1}, {"-layer_types", 0}}),
      (Cycle{-1, 16, 16}));
  EXPECT_EQ(cycle("qwen2", {{"use_sliding_window", true},
                            {"sliding_window", 16},
                            {"max_window_layers", 3},
                            {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}),
            (Cycle{16, -1}));
  EXPECT_EQ(
      cycle("qwen2",
            {{"use_sliding_window", true}, {"max_window_layers", 0}, {"-layer_types", 0}, {"-sliding_window", 0}}),
      (Cycle{4096}));
  EXPECT_EQ(cycle("phi3", {{"sliding_window", 2047}}), (Cycle{2047}));
  EXPECT_EQ(cycle("phi3", {{"sliding_window", nullptr}}), (Cycle{-1}));
  const auto alibi = read_golden("falcon7", {{"alibi", true}}).model;
  EXPECT_EQ(alibi.pos.type, model::PosType::kAlibi);
  EXPECT_EQ(alibi.rope, model::RopeConfig{});
  EXPECT_DOUBLE_EQ(alibi.pos.alibi_scale, 1 / std::sqrt(static_cast<double>(alibi.head_dim)));

  EXPECT_EQ(read_golden("phi", {{"-partial_rotary_factor", 0}}).model.rope.dims, 6);
  EXPECT_EQ(read_golden("phi", {{"partial_rotary_factor", 0.34}}).model.rope.dims, 4);
  EXPECT_EQ(read_golden("phi", {{"embd_pdrop", 0.1}}).model.dropout.embed, 0.1);
  EXPECT_EQ(read_golden("phi3", {{"resid_pdrop", 0.1}}).model.dropout.resid, 0.1);
  EXPECT_EQ(read_golden("stablelm", {{"use_parallel_residual", true}}).model.block.topology,
            model::Topology::kParallel);
  EXPECT_EQ(read_golden("stablelm", {{"use_qkv_bias", false}}).model.bias.qkv, false);

  // The published 7B says 71 KV heads and has one.
  EXPECT_EQ(read_golden("falcon7", {{"num_kv_heads", 4}}).model.n_kv_heads, 1);
  EXPECT_EQ(read_golden("falcon7", {{"multi_query", false}}).model.n_kv_heads, 4);
  EXPECT_EQ(read_golden("falcon40", {{"multi_query", false}}).model.n_kv_heads, 2);
  EXPECT_EQ(read_golden("falcon40", {{"num_kv_heads", nullptr}}).model.n_kv_heads, 4);
  EXPECT_EQ(read_golden("falcon40", {{"num_ln_in_parallel_attn", nullptr}}).model.block.parallel_norms, 2);
  EXPECT_EQ(read_golden("falcon2_11b", {{"-num_ln_in_parallel_attn", 0}}).model.block.parallel_norms, 2);
  EXPECT_EQ(read_golden("falcon7", {{"-ffn_hidden_size", 0}}).model.d_ff, 192);
  EXPECT_EQ(read_golden("falcon7", {{"-tie_word_embeddings", 0}}).model.tied, true);
}

struct Default {
  const char* type;
  int64_t vocab, positions, width, layers, heads, kv, head_dim, d_ff, rope_dims;
  double eps;
};

// What the classes of transformers 5.23 take for a file that says nothing.
TEST(HfConfigRead, ClassDefaultsAndANoteForEachSize) {
  const Default table[] = {
      {"gpt2", 50257, 1024, 768, 12, 12, 12, 64, 3072, 0, 1e-5},
      {"gptj", 50400, 2048, 4096, 28, 16, 16, 256, 16384, 64, 1e-5},
      {"gpt_neox", 50432, 2048, 6144, 44, 64, 64, 96, 24576, 24, 1e-5},
      {"llama", 32000, 2048, 4096, 32, 32, 32, 128, 11008, 128, 1e-6},
      {"qwen2", 151936, 32768, 4096, 32, 32, 32, 128, 22016, 128, 1e-6},
      {"phi", 51200, 2048, 2048, 24, 32, 32, 64, 8192, 32, 1e-5},
      {"phi3", 32064, 4096, 3072, 32, 32, 32, 96, 8192, 96, 1e-5},
      {"stablelm", 50304, 4096, 2560, 32, 32, 32, 80, 6912, 20, 1e-5},
      {"falcon", 65024, 2048, 4544, 32, 71, 1, 64, 18176, 64, 1e-5},
      {"gemma", 256000, 8192, 3072, 28, 16, 16, 256, 24576, 256, 1e-6},
      {"nemotron", 256000, 4096, 6144, 32, 48, 48, 128, 24576, 64, 1e-5},
      {"arcee", 32000, 4096, 2560, 32, 32, 32, 80, 18432, 80, 1e-5},
      {"jais2", 150272, 8192, 3328, 32, 26, 26, 128, 26624, 128, 1e-5},
      {"openai-gpt", 40478, 512, 768, 12, 12, 12, 64, 3072, 0, 1e-5},
      {"persimmon", 262144, 16384, 4096, 36, 64, 64, 64, 16384, 32, 1e-5},
      {"nanochat", 50304, 2048, 768, 12, 6, 6, 128, 8192, 128, 1e-6},
      {"chameleon", 65536, 4096, 4096, 32, 32, 32, 128, 11008, 128, 1e-5},
      {"ministral3", 131072, 262144, 4096, 34, 32, 8, 128, 14336, 128, 1e-5},
      {"opt", 50272, 2048, 768, 12, 12, 12, 64, 3072, 0, 1e-5},
      {"biogpt", 42384, 1024, 1024, 24, 16, 16, 64, 4096, 0, 1e-5},
      {"xglm", 256008, 2048, 1024, 24, 16, 16, 64, 4096, 0, 1e-5},
      {"codegen", 50400, 2048, 4096, 28, 16, 16, 256, 16384, 64, 1e-5},
      {"gpt_bigcode", 50257, 1024, 768, 12, 12, 1, 64, 3072, 0, 1e-5},
      {"qwen", 151936, 8192, 4096, 32, 32, 32, 128, 11008, 128, 1e-6},
      {"cohere", 256000, 8192, 8192, 40, 64, 64, 128, 22528, 128, 1e-5},
      {"olmo", 50304, 2048, 4096, 32, 32, 32, 128, 11008, 128, 1e-5},
  };
  for (const Default& d : table) {
    SCOPED_TRACE(d.type);
    const HfConfig config = parse_hf_config(std::string("{\"model_type\":\"") + d.type + "\"}", "config.json");
    const model::ModelConfig& m = config.model;
    EXPECT_EQ(m.vocab_size, d.vocab);
    EXPECT_EQ(config.extras.max_positions, d.positions);
    EXPECT_EQ(m.d_model, d.width);
    EXPECT_EQ(m.n_layers, d.layers);
    EXPECT_EQ(m.n_heads, d.heads);
    EXPECT_EQ(m.n_kv_heads, d.kv);
    EXPECT_EQ(m.head_dim, d.head_dim);
    EXPECT_EQ(m.d_ff, d.d_ff);
    EXPECT_EQ(m.rope.dims, d.rope_dims);
    EXPECT_EQ(m.norm.variant.eps, d.eps);
    EXPECT_GE(config.notes.size(), 5U);
    EXPECT_THAT(config.notes[0], HasSubstr("vocab_size is absent"));
  }
}

TEST(HfConfigRead, WhatAClassHasThatNoKeySays) {
  const HfConfig gemma = read_type("gemma", {{"hidden_size", 1024}});
  EXPECT_EQ(gemma.model.embed_scale, 32);
  EXPECT_TRUE(gemma.model.norm.variant.unit_offset && gemma.model.tied && gemma.model.ffn.gated);
  const HfConfig nemotron = read_type("nemotron", {});
  EXPECT_TRUE(nemotron.model.norm.variant.unit_offset);
  EXPECT_EQ(nemotron.model.norm.affine, model::NormAffine::kScaleBias);
  EXPECT_EQ(nemotron.model.ffn, (model::FfnConfig{Activation::kRelu2, false}));
  EXPECT_EQ(read_type("jais2", {}).model.rope.base, 5e5);
  EXPECT_TRUE(read_type("jais2", {}).model.bias.ffn);
  EXPECT_FALSE(read_type("arcee", {}).model.bias.ffn);
  const HfConfig opt = read_type("opt", {{"word_embed_proj_dim", 512}, {"enable_bias", false}});
  EXPECT_EQ(opt.model.embed_dim, 512);
  EXPECT_EQ(opt.model.pos, (model::PosConfig{model::PosType::kLearned, 2048, 2}));
  EXPECT_FALSE(opt.model.bias.qkv);
  EXPECT_EQ(read_type("opt", {{"word_embed_proj_dim", 768}}).model.embed_dim, std::nullopt);
  EXPECT_EQ(read_type("opt", {{"_remove_final_layer_norm", true}}).model.norm.final, false);
  EXPECT_EQ(read_type("opt", {{"layer_norm_elementwise_affine", false}}).model.norm.affine, model::NormAffine::kNone);
  EXPECT_EQ(read_type("xglm", {{"d_model", 256}}).model.embed_scale, 16);
  EXPECT_EQ(read_type("xglm", {{"scale_embedding", false}}).model.embed_scale, 1);
  EXPECT_EQ(read_type("biogpt", {{"layer_norm_eps", 1e-12}}).model.norm.variant.eps, 1e-5);
  EXPECT_EQ(read_type("gpt_bigcode", {{"multi_query", false}}).model.n_kv_heads, 12);
  EXPECT_EQ(read_type("qwen", {{"no_bias", false}}).model.bias, (model::BiasConfig{true, true, true, false}));
  const HfConfig baichuan = read_type("baichuan", {{"z_loss_weight", 2e-4}});
  EXPECT_TRUE(baichuan.model.norm_rows);
  EXPECT_EQ(baichuan.model.loss, (model::LossConfig{2e-4, ZKind::kMaxLogit}));
  const HfConfig cohere = read_type("cohere", {});
  EXPECT_EQ(cohere.model.logit_scale, 0.0625);
  EXPECT_EQ(cohere.model.norm.affine, model::NormAffine::kScale);
}

TEST(HfConfigRead, WhatOtherModelsOfAClassHaveIsRefusedByName) {
  const RefusedChange table[] = {
      {"opt", R"({"layerdrop":0.1})", "layerdrop"},
      {"xglm", R"({"activation_dropout":0.1})", "activation_dropout"},
      {"codegen", R"({"n_head":2})", "multiple of 4"},
      {"gpt_bigcode", R"({"num_key_value_heads":12})", "num_key_value_heads"},
      {"baichuan", R"({})", "z_loss_weight is absent"},
      {"qwen", R"({"intermediate_size":22015})", "intermediate_size"},
      {"qwen", R"({"kv_channels":64})", "kv_channels"},
  };
  for (const RefusedChange& row : table) {
    SCOPED_TRACE(std::string(row.folder) + " " + row.changes);
    const Error error = testing::error_of([&] { read_type(row.folder, json::parse(row.changes)); });
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr(row.names));
  }
}

// The first Gemma files say gelu and mean its tanh form; later ones say so in a key of its own.
TEST(HfConfigRead, GemmaActivation) {
  const auto act = [](const json& keys) { return read_type("gemma", keys).model.ffn.act; };
  EXPECT_EQ(act(json::object()), Activation::kGeluTanh);
  EXPECT_EQ(act({{"hidden_act", "gelu"}}), Activation::kGeluTanh);
  EXPECT_EQ(act({{"hidden_act", "gelu"}, {"hidden_activation", nullptr}}), Activation::kGeluTanh);
  EXPECT_EQ(act({{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}}), Activation::kGeluTanh);
  EXPECT_EQ(act({{"hidden_activation", "relu"}}), Activation::kRelu);
  EXPECT_THAT(testing::error_of([&] {
                act({{"hidden_act", "silu"}, {"hidden_activation", "relu"}});
              }).what(),
              HasSubstr("hidden_act = \"silu\": expected relu, the activation that hidden_activation names"));
  EXPECT_THAT(testing::error_of([&] {
                read_type("gemma", {{"use_bidirectional_attention", true}});
              }).what(),
              HasSubstr("use_bidirectional_attention"));
}

// Published files, their keys as the hub holds them (values that matter only).
TEST(HfConfigRead, KeysOfPublishedFiles) {
  EXPECT_NO_THROW(
      parse_hf_config(R"({"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,
    "bos_token_id":50256,"embd_pdrop":0.1,"eos_token_id":50256,"initializer_range":0.02,"layer_norm_epsilon":1e-05,
    "model_type":"gpt2","n_ctx":1024,"n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"resid_pdrop":0.1,
    "summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,"summary_type":"cls_index",
    "summary_use_proj":true,"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},
    "vocab_size":50257})",
                      "x"));
  EXPECT_NO_THROW(parse_hf_config(R"({"alibi":false,"apply_residual_connection_post_layernorm":false,
    "architectures":["FalconForCausalLM"],"attention_dropout":0.0,"auto_map":{"AutoConfig":"x"},"bias":false,
    "bos_token_id":11,"eos_token_id":11,"hidden_dropout":0.0,"hidden_size":4544,"initializer_range":0.02,
    "layer_norm_epsilon":1e-05,"model_type":"falcon","multi_query":true,"new_decoder_architecture":false,
    "num_attention_heads":71,"num_hidden_layers":32,"num_kv_heads":71,"parallel_attn":true,"torch_dtype":"bfloat16",
    "transformers_version":"4.27.4","use_cache":true,"vocab_size":65024})",
                                  "x"));
  const HfConfig neox = parse_hf_config(R"({"architectures":["GPTNeoXForCausalLM"],"attention_probs_dropout_prob":0,
    "bos_token_id":0,"eos_token_id":0,"hidden_act":"gelu_fast","hidden_dropout_prob":0,"hidden_size":6144,
    "initializer_range":0.02,"intermediate_size":24576,"layer_norm_eps":1e-05,"max_position_embeddings":2048,
    "model_type":"gpt_neox","num_attention_heads":64,"num_hidden_layers":44,"rotary_emb_base":10000,"rotary_pct":0.25,
    "tie_word_embeddings":false,"torch_dtype":"float16","transformers_version":"4.19.0","use_cache":true,
    "vocab_size":50432})",
                                        "x");
  EXPECT_EQ(neox.model.ffn.act, Activation::kGeluTanh);
  EXPECT_EQ(neox.model.rope.dims, 24);
  EXPECT_EQ(model::count_parameters(neox.model).total(), 20554567680);  // published: 20,554,567,680
}

}  // namespace
}  // namespace ashlar::hf
