#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family hunyuan() {
  return {
      .class_name = "HunYuanDenseV1ForCausalLM",
      .model_type = "hunyuan_v1_dense",
      .base = {.norm = kRmsNorm, .qk_norm = {.kind = model::QkNorm::kHead, .order = model::QkNormOrder::kAfterRope}},
      .rows = joined(
          llama_rows({290943, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
          {kv_heads(), head_dim(HeadDim::kWritten), attention_bias(), qk_norm_eps(), rope({.whole_heads = true})}),
      .tensors = {.q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm"}};
}

}  // namespace ashlar::hf
