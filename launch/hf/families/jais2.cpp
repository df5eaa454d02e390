#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family jais2() {
  return {.class_name = "Jais2ForCausalLM",
          .model_type = "jais2",
          .base = {.norm = kLayerNorm, .ffn = kUngated},
          .rows = joined(llama_rows({150272, 8192, 3328, 32, 26, 26624}, "relu2", "layer_norm_eps", 1e-5),
                         {heads_divide_width(), kv_heads(), head_dim(HeadDim::kWritten),
                          rope({.base = 500000.0, .whole_heads = true}), attention_bias(true), mlp_bias(true)})};
}

}  // namespace ashlar::hf
