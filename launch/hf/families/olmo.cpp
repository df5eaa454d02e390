#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family olmo() {
  return {
      .class_name = "OlmoForCausalLM",
      .model_type = "olmo",
      .base = {.norm = {.variant = {.type = NormType::kLayerNorm, .eps = 1e-5}, .affine = model::NormAffine::kNone}},
      .rows =
          joined(llama_rows({50304, 2048, 4096, 32, 32, 11008}, "silu", nullptr, 0),
                 {kv_heads(), head_dim(HeadDim::kDerived), attention_bias(), clip_qkv(), rope({.whole_heads = true})})};
}

}  // namespace ashlar::hf
