#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

using model::ModelConfig;

Rows joined(Rows first, const Rows& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Rows llama_rows(const Sizes& s, const char* act, const char* eps_key, double eps) {
  return llama_rows(s, activation("hidden_act", act), eps_key, eps);
}

Rows llama_rows(const Sizes& s, const Row& act, const char* eps_key, double eps) {
  Rows rows = {size({"vocab_size"}, {FIELD(vocab_size)}, s.vocab),
               positions({"max_position_embeddings"}, s.positions),
               size({"hidden_size"}, {FIELD(d_model)}, s.width),
               size({"num_hidden_layers"}, {FIELD(n_layers)}, s.layers),
               size({"num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, s.heads),
               size({"intermediate_size"}, {FIELD(d_ff)}, s.d_ff),
               act,
               number("attention_dropout", {FIELD(dropout.attn)}, 0.0)};
  if (eps_key != nullptr) rows.push_back(number(eps_key, {FIELD(norm.variant.eps)}, eps));
  return rows;
}

Rows mistral_rows(bool types) {
  return joined(llama_rows({32000, 4096 * 32, 4096, 32, 32, 14336}, "silu", "rms_norm_eps", 1e-6),
                {kv_heads(8), head_dim(HeadDim::kWritten), windows({.absent = 4096, .types = types}),
                 rope({.whole_heads = true})});
}

Rows glm_rows() {
  return joined(llama_rows({151552, 131072, 4096, 40, 32, 13696}, "silu", "rms_norm_eps", 1.5625e-7),
                {kv_heads(2), head_dim(HeadDim::kWritten, 128), flag("attention_bias", {FIELD(bias.qkv)}, true),
                 rope({.fraction = 0.5})});
}

Row attention_bias(bool fallback) { return flag("attention_bias", {FIELD(bias.qkv), FIELD(bias.attn_out)}, fallback); }

Row mlp_bias(bool fallback) { return flag("mlp_bias", {FIELD(bias.ffn)}, fallback); }

Row qk_norm_eps() {
  return derived([](ModelConfig& m) { m.qk_norm.eps = m.norm.variant.eps; });
}

Row heads_divide_width() {
  return demand([](const ModelConfig& m) {
    return m.d_model % m.n_heads == 0
               ? std::string()
               : str_cat("model.n_heads = ", m.n_heads, ": the class needs a divisor of model.d_model");
  });
}

Row ffn_of_four_widths() {
  return derived([](ModelConfig& m) { m.d_ff = four_widths(m); });
}

Row embedding_scale() {
  return derived([](ModelConfig& m) { m.embed_scale = std::sqrt(static_cast<double>(m.d_model)); });
}

Row embedding_scale(const char* key, bool fallback) {
  const auto set = [](ModelConfig& m, bool scaled) {
    if (scaled) m.embed_scale = std::sqrt(static_cast<double>(m.d_model));
  };
  return flag(key, fallback, set, [](const ModelConfig& m) { return m.embed_scale != 1.0; });
}

Row clip_qkv() { return optional_number("clip_qkv", FIELD(attn.clip_qkv), std::nullopt); }

Row qwen2_windows() {
  const auto read = [](JsonReader& r, HfConfig& c) {
    const bool uses = r.boolean({"use_sliding_window"}, false);
    const nlohmann::json* first = r.raw("max_window_layers");
    const int64_t full_layers = first != nullptr && first->is_number_integer() ? first->get<int64_t>() : 28;
    const std::optional<int64_t> window = r.has("sliding_window") ? r.optional_size({"sliding_window"}) : 4096;
    read_layer_types(r, c.model, uses ? window : std::nullopt, [=](int64_t layer) { return layer >= full_layers; });
  };
  const auto write = [](Json& j, const HfConfig& c) {
    const std::vector<int64_t> layers = model::layer_windows(c.model);
    const auto slides = std::ranges::find_if(layers, [](int64_t w) { return w > 0; });
    j["use_sliding_window"] = slides != layers.end();
    if (slides == layers.end()) return;
    j["sliding_window"] = *slides;
    j["max_window_layers"] = slides - layers.begin();
    j["layer_types"] = layer_types_of(layers);
  };
  return {.read = read, .write = write, .limit = sliding_alone};
}

}  // namespace ashlar::hf
