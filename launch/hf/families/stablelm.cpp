#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family stablelm() {
  return {
      .class_name = "StableLmForCausalLM",
      .model_type = "stablelm",
      .base = {.norm = kLayerNorm},
      .rows = joined(
          llama_rows({50304, 4096, 2560, 32, 32, 6912}, "silu", "layer_norm_eps", 1e-5),
          {kv_heads(32), head_dim(HeadDim::kDerived), parallel_block("use_parallel_residual", 1, false),
           flag("use_qkv_bias", {FIELD(bias.qkv)}, false),
           always_false("qk_layernorm",
                        "expected false: this form of query and key norms is not supported; use another model", true),
           always_zero("hidden_dropout", "expected 0: dropout of the FFN alone is not supported; set it to 0"),
           rope({.fraction = 0.25})})};
}

}  // namespace ashlar::hf
