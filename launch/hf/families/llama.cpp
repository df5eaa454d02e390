#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family llama() {
  return {.class_name = "LlamaForCausalLM",
          .model_type = "llama",
          .old_class_names = {"LLaMAForCausalLM"},
          .base = {.norm = kRmsNorm},
          .rows = joined(llama_rows({32000, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-6),
                         {heads_divide_width(), kv_heads(), head_dim(HeadDim::kWritten), attention_bias(), mlp_bias(),
                          rope({.whole_heads = true}),
                          always_false("rope_interleaved",
                                       "expected false: the class never interleaves rotary pairs; remove this key")})};
}

}  // namespace ashlar::hf
