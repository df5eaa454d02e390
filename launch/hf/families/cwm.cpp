#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Sets the default rotary scaling of the class, if the file has neither rope_scaling nor rope_parameters.
void read_usual_scaling(JsonReader& r, HfConfig& c) {
  if (r.has_value("rope_scaling") || r.has_value("rope_parameters")) return;
  c.model.rope.scaling = model::RopeScaling::kLlama3;
  c.model.rope.factor = 16;
  c.model.rope.low_freq_factor = 1;
  c.model.rope.high_freq_factor = 4;
  c.model.rope.original_positions = 8192;
  r.add_note("rope_scaling is absent: using llama3 with factor 16, the default of the class");
}

}  // namespace

Family cwm() {
  return {.class_name = "CwmForCausalLM",
          .model_type = "cwm",
          .base = {.norm = kRmsNorm},
          .rows = joined(llama_rows({128256, 131072, 6144, 64, 48, 21504}, "silu", "rms_norm_eps", 1e-5),
                         {heads_divide_width(),
                          kv_heads(8),
                          head_dim(HeadDim::kWritten, 128),
                          always_false("attention_bias", "expected false: attention has no biases; remove this key"),
                          mlp_bias(),
                          windows({.absent = 8192, .full_every = 4, .first_is_full = true}),
                          {.read = read_usual_scaling},
                          rope({.base = 1e6, .whole_heads = true})})};
}

}  // namespace ashlar::hf
