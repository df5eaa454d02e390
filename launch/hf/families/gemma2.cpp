#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family gemma2() {
  return {.class_name = "Gemma2ForCausalLM",
          .model_type = "gemma2",
          .base = {.norm = rms_norm(model::NormPlacement::kSandwich, true)},
          .rows = gemma2_rows(),
          .tied_by_default = true,
          .tensors = {.norm2 = "pre_feedforward_layernorm"}};
}

}  // namespace ashlar::hf
