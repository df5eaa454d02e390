#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// seq_length, the longest context. The class does not use this key, since ALiBi does not limit the context.
Row seq_length() {
  return {.read = [](JsonReader& r,
                     HfConfig& c) { c.extras.max_positions = r.optional_size({"seq_length"}).value_or(2048); },
          .write = [](Json& j, const HfConfig& c) { j["seq_length"] = c.extras.max_positions; }};
}

}  // namespace

Family bloom() {
  return {.class_name = "BloomForCausalLM",
          .model_type = "bloom",
          .base = {.norm = {.variant = {.type = NormType::kLayerNorm},
                            .affine = model::NormAffine::kScaleBias,
                            .embed = true},
                   .bias = kAllBiasesButHead,
                   // GELU in its tanh form. The class uses 0.79788456 for sqrt(2/pi), which changes the result by 2e-9.
                   .ffn = {.act = Activation::kGeluTanh, .gated = false},
                   .pos = {.type = model::PosType::kAlibi}},
          .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 250880), seq_length(),
                   size({"hidden_size", "n_embed"}, {FIELD(d_model)}, 64),
                   size({"n_layer", "num_hidden_layers"}, {FIELD(n_layers)}, 2),
                   size({"n_head", "num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 8),
                   head_dim(HeadDim::kDerived), ffn_of_four_widths(),
                   number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-5),
                   number("hidden_dropout", {FIELD(dropout.resid)}, 0.0),
                   number("attention_dropout", {FIELD(dropout.attn)}, 0.0),
                   always_false("apply_residual_connection_post_layernorm",
                                "expected false: only a residual before the norm is supported; use another model"),
                   // The published files have these keys; the class does not read them.
                   ignored({"n_inner", "offset_alibi"})},
          .tied_by_default = true,
          .tensors = {.prefix = "transformer.",
                      .tokens = "word_embeddings",
                      .norm_embed = "word_embeddings_layernorm",
                      .norm_final = "ln_f",
                      .layers = "h.",
                      .qkv = "self_attention.query_key_value",
                      .attn_out = "self_attention.dense",
                      .up = "mlp.dense_h_to_4h",
                      .down = "mlp.dense_4h_to_h",
                      .qkv_groups = 0,
                      .buffers = {}}};
}

}  // namespace ashlar::hf
