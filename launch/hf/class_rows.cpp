#include "launch/hf/class_rows.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace ashlar::hf {

Rows joined(Rows first, const Rows& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

Rows gpt_rows(const Sizes& s, double dropout) {
  return {size({"vocab_size"}, {AXIS(vocab_size)}, s.vocab),
          positions({"n_positions", "max_position_embeddings"}, s.positions),
          size({"n_embd", "hidden_size"}, {AXIS(d_model)}, s.width),
          size({"n_layer", "num_hidden_layers"}, {AXIS(n_layers)}, s.layers),
          size({"n_head", "num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, s.heads),
          size_or({"n_inner"}, AXIS(d_ff), four_widths),
          head_dim(HeadDim::kDerived),
          activation("activation_function", "gelu_new"),
          number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-5),
          number("embd_pdrop", {AXIS(dropout.embed)}, dropout),
          number("attn_pdrop", {AXIS(dropout.attn)}, dropout),
          number("resid_pdrop", {AXIS(dropout.resid)}, dropout)};
}

Rows usual_rows(const Sizes& s, const char* act, const char* eps_key, double eps) {
  return usual_rows(s, activation("hidden_act", act), eps_key, eps);
}

Rows usual_rows(const Sizes& s, const Row& act, const char* eps_key, double eps) {
  Rows rows = {size({"vocab_size"}, {AXIS(vocab_size)}, s.vocab),
               positions({"max_position_embeddings"}, s.positions),
               size({"hidden_size"}, {AXIS(d_model)}, s.width),
               size({"num_hidden_layers"}, {AXIS(n_layers)}, s.layers),
               size({"num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, s.heads),
               size({"intermediate_size"}, {AXIS(d_ff)}, s.d_ff),
               act,
               number("attention_dropout", {AXIS(dropout.attn)}, 0.0)};
  if (eps_key != nullptr) rows.push_back(number(eps_key, {AXIS(norm.variant.eps)}, eps));
  return rows;
}

Row heads_divide_width() {
  return {.read = [](JsonReader&, HfConfig&) {},
          .limit =
              [](const model::ModelConfig& m) {
                return m.d_model % m.n_heads == 0
                           ? std::string()
                           : str_cat("model.n_heads = ", m.n_heads, ": the class has a divisor of d_model");
              }};
}

Row scale_attn_weights() {
  return {.read =
              [](JsonReader& r, HfConfig& c) {
                if (!r.boolean({"scale_attn_weights"}, true)) c.model.attn.scale = 1.0;
              },
          .write = [](Json& j, const HfConfig& c) { j["scale_attn_weights"] = c.model.attn.scale != 1.0; }};
}

Row rotary_dim() {
  return {.read =
              [](JsonReader& r, HfConfig& c) {
                if (r.has("rotary_dim") && !r.has_value("rotary_dim")) {
                  r.refuse("rotary_dim",
                           "the class has no meaning for null; expected the number of rotated dimensions");
                }
                c.model.rope.dims = r.optional_size({"rotary_dim"}).value_or(64);
              },
          .write = [](Json& j, const HfConfig& c) { j["rotary_dim"] = c.model.rope.dims; }};
}

Row embedding_scale(const char* key, bool fallback) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                if (r.boolean({key}, fallback)) c.model.embed_scale = std::sqrt(static_cast<double>(c.model.d_model));
              },
          .write = [=](Json& j, const HfConfig& c) { j[key] = c.model.embed_scale != 1.0; }};
}

Row embedding_times_root_of_width() {
  return {
      .read = [](JsonReader&, HfConfig& c) { c.model.embed_scale = std::sqrt(static_cast<double>(c.model.d_model)); }};
}

Row causal_attention_alone() {
  return {.read = [](JsonReader& r, HfConfig&) {
    constexpr const char* kKey = "use_bidirectional_attention";
    if (r.raw(kKey) != nullptr && r.boolean({kKey}, false))
      r.refuse(kKey, "attention is causal always; expected false or null");
  }};
}

}  // namespace ashlar::hf
