#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family nemotron() {
  return {
      .class_name = "NemotronForCausalLM",
      .model_type = "nemotron",
      .base = {.norm = {.variant = {.type = NormType::kLayerNorm, .unit_offset = true},
                        .affine = model::NormAffine::kScaleBias},
               .ffn = kUngated},
      .rows = joined(llama_rows({256000, 4096, 6144, 32, 48, 24576}, "relu2", "norm_eps", 1e-5),
                     {kv_heads(), head_dim(HeadDim::kWritten), rope({.fraction = 0.5}), attention_bias(), mlp_bias()})};
}

}  // namespace ashlar::hf
