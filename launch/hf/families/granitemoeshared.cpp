#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family granitemoe();

/// granitemoe with a shared expert.
Family granitemoeshared() {
  Family family = granitemoe();
  family.class_name = "GraniteMoeSharedForCausalLM";
  family.model_type = "granitemoeshared";
  family.rows = joined(std::move(family.rows), {size({"shared_intermediate_size"}, {FIELD(moe.shared_d_ff)}, 1024)});
  family.tensors.shared = "shared_mlp.";
  family.tensors.shared_gate_up = "input_linear";
  family.tensors.shared_down = "output_linear";
  return family;
}

}  // namespace ashlar::hf
