#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family seed_oss() {
  return {.class_name = "SeedOssForCausalLM",
          .model_type = "seed_oss",
          .base = {.norm = kRmsNorm},
          .rows = joined(
              llama_rows({155136, 524288, 4096, 64, 80, 27648}, "silu", "rms_norm_eps", 1e-6),
              {number("attention_dropout", {FIELD(dropout.attn)}, 0.1),
               number("residual_dropout", {FIELD(dropout.resid)}, 0.1), kv_heads(8), head_dim(HeadDim::kWritten, 128),
               flag("attention_bias", {FIELD(bias.qkv)}, true),
               flag("attention_out_bias", {FIELD(bias.attn_out)}, false), mlp_bias(), rope({.whole_heads = true})})};
}

}  // namespace ashlar::hf
