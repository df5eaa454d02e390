#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::QkNorm;

void qk_layernorm(model::ModelConfig& m, bool normed) {
  if (normed)
    m.qk_norm = {.kind = QkNorm::kHead, .type = NormType::kLayerNorm, .bias = true, .eps = m.norm.variant.eps};
}

void refuse_fewer_kv_heads(JsonReader& r, HfConfig& c) {
  const auto given = r.optional_size({"num_key_value_heads"});
  if (given && *given != c.model.n_heads)
    r.refuse("num_key_value_heads", "expected ", c.model.n_heads,
             ": the class has as many KV heads as query heads; remove this key");
}

}  // namespace

Family persimmon() {
  return {.class_name = "PersimmonForCausalLM",
          .model_type = "persimmon",
          .base = {.norm = kLayerNorm, .bias = kAllBiasesButHead, .ffn = kUngated},
          .rows = joined(
              llama_rows({262144, 16384, 4096, 36, 64, 16384}, "relu2", "layer_norm_eps", 1e-5),
              {head_dim(HeadDim::kDerived),
               {.read = refuse_fewer_kv_heads},
               flag("qk_layernorm", true, qk_layernorm,
                    [](const model::ModelConfig& m) { return m.qk_norm.kind != QkNorm::kNone; }),
               always_zero("hidden_dropout", "expected 0: dropout of the FFN alone is not supported; set it to 0"),
               rope({.base = 25000.0, .fraction = 0.5})}),
          .tensors = {.norm_final = "final_layernorm",
                      .qkv = "self_attn.query_key_value",
                      .q_norm = "self_attn.q_layernorm",
                      .k_norm = "self_attn.k_layernorm",
                      .attn_out = "self_attn.dense",
                      .up = "mlp.dense_h_to_4h",
                      .down = "mlp.dense_4h_to_h",
                      .qkv_groups = 0}};
}

}  // namespace ashlar::hf
