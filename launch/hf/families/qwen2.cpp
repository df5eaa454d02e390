#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family qwen2() {
  return {.class_name = "Qwen2ForCausalLM",
          .model_type = "qwen2",
          .base = {.norm = kRmsNorm, .bias = {.qkv = true}},
          .rows = joined(
              llama_rows({151936, 32768, 4096, 32, 32, 22016}, "silu", "rms_norm_eps", 1e-6),
              {kv_heads(32), head_dim(HeadDim::kWrittenIfNeeded), qwen2_windows(), rope({.whole_heads = true})})};
}

}  // namespace ashlar::hf
