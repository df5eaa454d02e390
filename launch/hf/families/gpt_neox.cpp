#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family gpt_neox() {
  return {.class_name = "GPTNeoXForCausalLM",
          .model_type = "gpt_neox",
          .base = {.norm = kLayerNorm, .bias = {.ffn = true}, .ffn = kUngated},
          .rows = joined(
              llama_rows({50432, 2048, 6144, 44, 64, 24576}, "gelu", "layer_norm_eps", 1e-5),
              {head_dim(HeadDim::kDerived), parallel_block("use_parallel_residual", 2, true), attention_bias(true),
               // hidden_dropout acts on the embedding and on the outputs of both branches.
               number("hidden_dropout", {FIELD(dropout.resid), FIELD(dropout.embed)}, 0.0),
               rope({.base_key = "rotary_emb_base", .fraction_key = "rotary_pct", .fraction = 0.25}),
               unread_rope_keys("rope_theta", "partial_rotary_factor"),
               // The published 20B file has these keys; the class does not read them.
               ignored({"attention_probs_dropout_prob", "hidden_dropout_prob"})}),
          .tensors = {.prefix = "gpt_neox.",
                      .tokens = "embed_in",
                      .norm_final = "final_layer_norm",
                      .head = "embed_out",
                      .head_alias = "lm_head",
                      .qkv = "attention.query_key_value",
                      .attn_out = "attention.dense",
                      .up = "mlp.dense_h_to_4h",
                      .down = "mlp.dense_4h_to_h",
                      .qkv_groups = 0,
                      .buffers = {".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"}}};
}

}  // namespace ashlar::hf
