#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family glm() {
  return {.class_name = "GlmForCausalLM",
          .model_type = "glm",
          .base = {.norm = kRmsNorm, .rope = kInterleaved},
          .rows = glm_rows(),
          .tensors = {.gate_up = "mlp.gate_up_proj"}};
}

}  // namespace ashlar::hf
