#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family qwen3() {
  return {.class_name = "Qwen3ForCausalLM",
          .model_type = "qwen3",
          .base = {.norm = kRmsNorm, .qk_norm = {.kind = model::QkNorm::kHead}},
          .rows = joined(llama_rows({151936, 32768, 4096, 32, 32, 22016}, "silu", "rms_norm_eps", 1e-6),
                         {kv_heads(32), head_dim(HeadDim::kWritten, 128), attention_bias(), qk_norm_eps(),
                          qwen2_windows(), rope({.whole_heads = true})})};
}

}  // namespace ashlar::hf
