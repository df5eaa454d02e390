#include "launch/gguf/architecture.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/base/strings.h"
#include "launch/gguf/rope_scaling.h"

namespace ashlar::gguf {

namespace {

using nlohmann::json;

/// Throws an input error unless a key of config.json has one value; a key that is absent or null has the value null.
void require(const json& config, const char* key, const json& expected, std::string_view architecture) {
  const json value = config.value(key, json());
  if (value == expected) return;
  throw input_error("gguf", "the model has ", key, " = ", value.dump(), ": llama.cpp's ", architecture, " expects ",
                    expected.is_null() ? "none" : expected.dump(), "; export to Hugging Face's format instead");
}

/// GELU's tanh form has two names. The exact form (erf) is another function.
void require_tanh_gelu(const json& config, const char* key, std::string_view architecture) {
  const std::string activation = config.value(key, "");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") return;
  throw input_error(
      "gguf", "the model has ", key, " = ", printable(activation), ": llama.cpp's ", architecture,
      " has only the tanh form of GELU (ffn.act = \"gelu_tanh\"); export to Hugging Face's format instead");
}

uint32_t size_at(const json& config, const char* key) { return config.at(key).get<uint32_t>(); }

/// The metadata that Llama, Qwen3 and Gemma 3 share. `scalings`: types of rope_scaling that the architecture has.
std::vector<Entry> rotary_metadata(const json& config, const std::string& name,
                                   std::initializer_list<std::string_view> scalings) {
  const uint32_t heads = size_at(config, "num_attention_heads"), hidden = size_at(config, "hidden_size");
  const uint32_t head_dim = config.value("head_dim", hidden / heads);
  std::vector<Entry> entries = {{name + ".block_count", size_at(config, "num_hidden_layers")},
                                {name + ".context_length", size_at(config, "max_position_embeddings")},
                                {name + ".embedding_length", hidden},
                                {name + ".feed_forward_length", size_at(config, "intermediate_size")},
                                {name + ".attention.head_count", heads},
                                {name + ".attention.head_count_kv", size_at(config, "num_key_value_heads")},
                                {name + ".attention.key_length", head_dim},
                                {name + ".attention.value_length", head_dim},
                                {name + ".attention.layer_norm_rms_epsilon", config.at("rms_norm_eps").get<float>()},
                                {name + ".rope.freq_base", config.at("rope_theta").get<float>()},
                                {name + ".rope.dimension_count", head_dim},
                                {name + ".vocab_size", size_at(config, "vocab_size")}};
  const std::vector<Entry> scaling = scaling_metadata(config, name, std::span(scalings.begin(), scalings.end()));
  entries.insert(entries.end(), scaling.begin(), scaling.end());
  return entries;
}

std::vector<Entry> llama_metadata(const json& config) {
  require(config, "hidden_act", "silu", "llama");
  return rotary_metadata(config, "llama", {"linear", "llama3"});
}

std::vector<Entry> qwen3_metadata(const json& config) {
  require(config, "hidden_act", "silu", "qwen3");
  require(config, "attention_bias", false, "qwen3");
  require(config, "use_sliding_window", false, "qwen3");
  return rotary_metadata(config, "qwen3", {"linear"});
}

std::vector<Entry> gemma3_metadata(const json& config) {
  require_tanh_gelu(config, "hidden_activation", "gemma3");
  require(config, "attention_bias", false, "gemma3");
  require(config, "final_logit_softcapping", json(), "gemma3");
  require(config, "rope_local_base_freq", 1e4, "gemma3");
  const json local = config.value("rope_parameters", json::object()).value("sliding_attention", json::object());
  if (local.value("rope_type", "default") != "default")  // llama.cpp scales the layers with full attention alone
    throw input_error("gguf", "the model scales the rotary positions of layers with a window: llama.cpp's gemma3 ",
                      "expects rope.scaled_layers = \"full\"; export to Hugging Face's format instead");
  require(config, "query_pre_attn_scalar", config.at("head_dim"), "gemma3");
  json types = json::array();
  for (uint32_t i = 0; i < size_at(config, "num_hidden_layers"); ++i)
    types.push_back(i % 6 == 5 ? "full_attention" : "sliding_attention");
  require(config, "layer_types", types, "gemma3");
  std::vector<Entry> entries = rotary_metadata(config, "gemma3", {"linear"});
  entries.push_back({"gemma3.attention.sliding_window", size_at(config, "sliding_window")});
  return entries;
}

std::vector<Entry> gpt2_metadata(const json& config) {
  require_tanh_gelu(config, "activation_function", "gpt2");
  const uint32_t hidden = size_at(config, "n_embd");
  const json inner = config.value("n_inner", json());
  return {{"gpt2.block_count", size_at(config, "n_layer")},
          {"gpt2.context_length", size_at(config, "n_positions")},
          {"gpt2.embedding_length", hidden},
          {"gpt2.feed_forward_length", inner.is_null() ? 4 * hidden : inner.get<uint32_t>()},
          {"gpt2.attention.head_count", size_at(config, "n_head")},
          {"gpt2.attention.layer_norm_epsilon", config.at("layer_norm_epsilon").get<float>()},
          {"gpt2.vocab_size", size_at(config, "vocab_size")}};
}

/// The tensors of a decoder with rotary positions. `change` is that of the query and key projections, `norm` of norms.
std::vector<TensorName> rotary_tensors(Change change, Change norm) {
  return {{"model.embed_tokens", "token_embd"},
          {"model.norm", "output_norm", norm},
          {"lm_head", "output"},
          {"model.layers.#.input_layernorm", "blk.#.attn_norm", norm},
          {"model.layers.#.self_attn.q_proj", "blk.#.attn_q", change},
          {"model.layers.#.self_attn.k_proj", "blk.#.attn_k", change},
          {"model.layers.#.self_attn.v_proj", "blk.#.attn_v"},
          {"model.layers.#.self_attn.o_proj", "blk.#.attn_output"},
          {"model.layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
          {"model.layers.#.mlp.up_proj", "blk.#.ffn_up"},
          {"model.layers.#.mlp.down_proj", "blk.#.ffn_down"}};
}

std::vector<TensorName> with(std::vector<TensorName> tensors, const std::vector<TensorName>& more) {
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

}  // namespace

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table = {
      {.class_name = "LlamaForCausalLM",
       .name = "llama",
       .tensors = with(rotary_tensors(Change::kPairs, Change::kNone),
                       {{"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"}}),
       .metadata = llama_metadata},
      {.class_name = "Qwen3ForCausalLM",
       .name = "qwen3",
       .tensors = with(rotary_tensors(Change::kNone, Change::kNone),
                       {{"model.layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
                        {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
                        {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm"}}),
       .metadata = qwen3_metadata},
      {.class_name = "Gemma3ForCausalLM",
       .name = "gemma3",
       .tensors = with(rotary_tensors(Change::kNone, Change::kAddOne),
                       {{"model.layers.#.post_attention_layernorm", "blk.#.post_attention_norm", Change::kAddOne},
                        {"model.layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm", Change::kAddOne},
                        {"model.layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm", Change::kAddOne},
                        {"model.layers.#.self_attn.q_norm", "blk.#.attn_q_norm", Change::kAddOne},
                        {"model.layers.#.self_attn.k_norm", "blk.#.attn_k_norm", Change::kAddOne}}),
       .metadata = gemma3_metadata},
      {.class_name = "GPT2LMHeadModel",
       .name = "gpt2",
       .tensors = {{"transformer.wte", "token_embd"},
                   {"transformer.wpe", "position_embd"},
                   {"transformer.ln_f", "output_norm"},
                   {"lm_head", "output"},
                   {"transformer.h.#.ln_1", "blk.#.attn_norm"},
                   {"transformer.h.#.ln_2", "blk.#.ffn_norm"},
                   {"transformer.h.#.attn.c_attn", "blk.#.attn_qkv", Change::kTranspose},
                   {"transformer.h.#.attn.c_proj", "blk.#.attn_output", Change::kTranspose},
                   {"transformer.h.#.mlp.c_fc", "blk.#.ffn_up", Change::kTranspose},
                   {"transformer.h.#.mlp.c_proj", "blk.#.ffn_down", Change::kTranspose}},
       .metadata = gpt2_metadata}};
  return table;
}

const Architecture& architecture_of(std::string_view class_name) {
  for (const Architecture& architecture : architectures())
    if (architecture.class_name == class_name) return architecture;
  throw input_error("gguf", "the model is a ", class_name, ": expected one of ",
                    comma_list(architectures(), &Architecture::class_name),
                    "; export to Hugging Face's format instead, or choose a class with --class");
}

FoundName name_of_tensor(const Architecture& architecture, std::string_view hf_name) {
  const size_t dot = hf_name.rfind('.');
  const std::string ending(hf_name.substr(dot));  // .weight or .bias
  std::string stem(hf_name.substr(0, dot)), layer;
  if (const size_t digit = stem.find_first_of("0123456789"); digit != std::string::npos && stem[digit - 1] == '.') {
    const size_t end = std::min(stem.find('.', digit), stem.size());
    layer = stem.substr(digit, end - digit);
    stem.replace(digit, end - digit, "#");
  }
  for (const TensorName& tensor : architecture.tensors) {
    if (tensor.hugging_face != stem) continue;
    std::string name(tensor.gguf);
    if (const size_t at = name.find('#'); at != std::string::npos) name.replace(at, 1, layer);
    // A bias has one dimension: nothing to transpose.
    const bool plain = tensor.change == Change::kTranspose && ending == ".bias";
    return {.name = name + ending, .change = plain ? Change::kNone : tensor.change};
  }
  throw input_error("gguf", "llama.cpp's ", architecture.name, " has no tensor for ", hf_name,
                    "; export to Hugging Face's format instead");
}

}  // namespace ashlar::gguf
