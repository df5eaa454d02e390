#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family glm4() {
  return {
      .class_name = "Glm4ForCausalLM",
      .model_type = "glm4",
      .base = {.norm = rms_norm(model::NormPlacement::kSandwich), .rope = kInterleaved},
      .rows = glm_rows(),
      .tensors = {
          .norm1_out = "post_self_attn_layernorm", .norm2_out = "post_mlp_layernorm", .gate_up = "mlp.gate_up_proj"}};
}

}  // namespace ashlar::hf
