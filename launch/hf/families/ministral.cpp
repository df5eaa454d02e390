#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family ministral() {
  return {.class_name = "MinistralForCausalLM",
          .model_type = "ministral",
          .base = {.norm = kRmsNorm},
          .rows = mistral_rows(true)};
}

}  // namespace ashlar::hf
