#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family granite() {
  return {.class_name = "GraniteForCausalLM",
          .model_type = "granite",
          .base = {.norm = kRmsNorm},
          .rows = joined(granite_rows(), joined(granite_multipliers(), granite_scales()))};
}

}  // namespace ashlar::hf
