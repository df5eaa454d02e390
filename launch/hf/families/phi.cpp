#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family phi() {
  return {
      .class_name = "PhiForCausalLM",
      .model_type = "phi",
      .base = {.norm = kLayerNorm,
               .block = kParallel,
               .bias = {.qkv = true, .attn_out = true, .ffn = true, .lm_head = true},
               .ffn = kUngated},
      .rows = joined(
          llama_rows({51200, 2048, 2048, 24, 32, 8192}, "gelu_new", "layer_norm_eps", 1e-5),
          {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), number("embd_pdrop", {FIELD(dropout.embed)}, 0.0),
           number("resid_pdrop", {FIELD(dropout.resid)}, 0.0),
           always_false("qk_layernorm",
                        "expected false: this form of query and key norms is not supported; use another model", true),
           // Files of the first releases have these keys; the class does not read them.
           ignored({"attention_bias", "rotary_dim"}), rope({.fraction = 0.5})}),
      .tensors = {.norm_final = "final_layernorm", .attn_out = "self_attn.dense", .up = "mlp.fc1", .down = "mlp.fc2"}};
}

}  // namespace ashlar::hf
