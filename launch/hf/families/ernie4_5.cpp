#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family ernie4_5() {
  return {.class_name = "Ernie4_5ForCausalLM",
          .model_type = "ernie4_5",
          .base = {.norm = kRmsNorm, .rope = kInterleaved},
          .rows = joined(llama_rows({103424, 131072, 1024, 18, 16, 3072}, "silu", "rms_norm_eps", 1e-5),
                         {always_zero("attention_dropout", "expected 0: the class has no dropout; remove this key"),
                          kv_heads(2), head_dim(HeadDim::kWritten, 128),
                          flag("use_bias", {FIELD(bias.qkv), FIELD(bias.attn_out), FIELD(bias.ffn)}, false),
                          rope({.base = 500000.0, .whole_heads = true})}),
          .tied_by_default = true};
}

}  // namespace ashlar::hf
