#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family vaultgemma() {
  return {.class_name = "VaultGemmaForCausalLM",
          .model_type = "vaultgemma",
          .base = {.norm = rms_norm(model::NormPlacement::kPre, true)},
          .rows = gemma2_rows(),
          .tied_by_default = true,
          .tensors = {.norm2 = "pre_feedforward_layernorm"}};
}

}  // namespace ashlar::hf
