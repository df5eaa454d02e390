#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family arcee() {
  return {.class_name = "ArceeForCausalLM",
          .model_type = "arcee",
          .base = {.norm = kRmsNorm, .ffn = kUngated},
          .rows = joined(llama_rows({32000, 4096, 2560, 32, 32, 18432}, "relu2", "rms_norm_eps", 1e-5),
                         {heads_divide_width(), kv_heads(), head_dim(HeadDim::kWritten), rope({.whole_heads = true}),
                          attention_bias(), mlp_bias()})};
}

}  // namespace ashlar::hf
