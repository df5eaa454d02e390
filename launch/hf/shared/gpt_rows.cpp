#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Rows gpt_rows(const Sizes& s, double dropout) {
  return {size({"vocab_size"}, {FIELD(vocab_size)}, s.vocab),
          positions({"n_positions", "max_position_embeddings"}, s.positions),
          size({"n_embd", "hidden_size"}, {FIELD(d_model)}, s.width),
          size({"n_layer", "num_hidden_layers"}, {FIELD(n_layers)}, s.layers),
          size({"n_head", "num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, s.heads),
          size_or({"n_inner"}, FIELD(d_ff), four_widths),
          head_dim(HeadDim::kDerived),
          activation("activation_function", "gelu_new"),
          number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-5),
          number("embd_pdrop", {FIELD(dropout.embed)}, dropout),
          number("attn_pdrop", {FIELD(dropout.attn)}, dropout),
          number("resid_pdrop", {FIELD(dropout.resid)}, dropout)};
}

TensorNames gpt_tensors(TensorNames own) {
  own.prefix = "transformer.";
  own.tokens = "wte";
  own.norm_final = "ln_f";
  own.layers = "h.";
  own.norm1 = "ln_1";
  own.norm2 = "ln_2";
  return own;
}

Row scale_attn_weights() {
  const auto set = [](model::ModelConfig& m, bool scaled) {
    if (!scaled) m.attn.scale = 1.0;
  };
  return flag("scale_attn_weights", true, set, [](const model::ModelConfig& m) { return m.attn.scale != 1.0; });
}

Row rotary_dim() {
  return {.read =
              [](JsonReader& r, HfConfig& c) {
                if (r.has("rotary_dim") && !r.has_value("rotary_dim")) {
                  r.refuse("rotary_dim",
                           "expected the number of rotated dimensions: the class does not accept null; give a number");
                }
                c.model.rope.dims = r.optional_size({"rotary_dim"}).value_or(64);
              },
          .write = [](Json& j, const HfConfig& c) { j["rotary_dim"] = c.model.rope.dims; }};
}

}  // namespace ashlar::hf
