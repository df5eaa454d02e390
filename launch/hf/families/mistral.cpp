#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family mistral() {
  return {.class_name = "MistralForCausalLM",
          .model_type = "mistral",
          .base = {.norm = kRmsNorm},
          .rows = mistral_rows(false)};
}

}  // namespace ashlar::hf
