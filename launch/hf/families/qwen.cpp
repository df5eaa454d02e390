#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// intermediate_size is the width of gate and up together.
Row ffn_width() {
  return {.read =
              [](JsonReader& r, HfConfig& c) {
                const int64_t both = r.size({"intermediate_size"}, 22016);
                if (both % 2 != 0)
                  r.refuse("intermediate_size", "expected an even number, since Qwen 1 counts gate and up together; ",
                           "correct config.json");
                c.model.d_ff = both / 2;
              },
          .write = [](Json& j, const HfConfig& c) { j["intermediate_size"] = 2 * c.model.d_ff; }};
}

Row kv_channels() {
  const auto read = [](JsonReader& r, HfConfig& c) {
    c.model.head_dim = std::max<int64_t>(c.model.d_model / c.model.n_heads, 1);
    const int64_t given = r.optional_size({"kv_channels"}).value_or(128);
    if (given == c.model.head_dim) return;
    r.add_error(str_cat("kv_channels = ", given, ": expected ", c.model.head_dim,
                        ", which is hidden_size / num_attention_heads; remove kv_channels"));
  };
  return {.read = read, .write = [](Json& j, const HfConfig& c) { j["kv_channels"] = c.model.head_dim; }};
}

Row beyond_seq_length() {
  constexpr const char* kKeys[] = {"use_dynamic_ntk", "use_logn_attn"};
  return {.read =
              [=](JsonReader& r, HfConfig&) {
                for (const char* key : kKeys)
                  if (r.boolean({key}, true))
                    r.add_note(str_cat(key, " acts only beyond seq_length tokens and is ignored"));
              },
          .write =
              [=](Json& j, const HfConfig&) {
                for (const char* key : kKeys) j[key] = false;
              }};
}

}  // namespace

Family qwen() {
  return {
      .class_name = "QWenLMHeadModel",
      .model_type = "qwen",
      .base = {.norm = kRmsNorm, .bias = {.qkv = true}},
      .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 151936), positions({"max_position_embeddings"}, 8192),
               size({"hidden_size"}, {FIELD(d_model)}, 4096), size({"num_hidden_layers"}, {FIELD(n_layers)}, 32),
               size({"num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 32), ffn_width(), kv_channels(),
               flag(
                   "no_bias", true, [](model::ModelConfig& m, bool none) { m.bias.attn_out = m.bias.ffn = !none; },
                   [](const model::ModelConfig& m) { return !m.bias.ffn; }),
               number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-6),
               number("emb_dropout_prob", {FIELD(dropout.embed)}, 0.0),
               number("attn_dropout_prob", {FIELD(dropout.attn)}, 0.0),
               rope({.base_key = "rotary_emb_base", .fraction_key = "rotary_pct"}), beyond_seq_length(),
               ignored("seq_length", [](const HfConfig& c) { return c.extras.max_positions; }),
               ignored({"scale_attn_weights"})},
      .tensors = gpt_tensors(
          {.qkv = "attn.c_attn", .attn_out = "attn.c_proj", .gate = "mlp.w2", .up = "mlp.w1", .down = "mlp.c_proj"})};
}

}  // namespace ashlar::hf
