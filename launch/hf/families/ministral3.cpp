#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family ministral3() {
  return {.class_name = "Ministral3ForCausalLM",
          .model_type = "ministral3",
          .base = {.norm = kRmsNorm},
          .rows = joined(llama_rows({131072, 262144, 4096, 34, 32, 14336}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(8), head_dim(HeadDim::kWritten, 128), windows({.types = false}),
                          rope({.whole_heads = true, .temperature = true})})};
}

}  // namespace ashlar::hf
