#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Returns the value to write as original_max_position_embeddings at the top level of config.json. The class reads this
/// key only with longrope scaling; without it, the value has no effect.
int64_t original_positions(const HfConfig& c) {
  const bool scaled = c.model.rope.scaling == model::RopeScaling::kLongrope;
  return scaled ? c.model.rope.original_positions : c.extras.max_positions;
}

}  // namespace

Family phi3() {
  return {.class_name = "Phi3ForCausalLM",
          .model_type = "phi3",
          .base = {.norm = kRmsNorm},
          .rows = joined(llama_rows({32064, 4096, 3072, 32, 32, 8192}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded),
                          ignored("original_max_position_embeddings", original_positions), windows({.types = false}),
                          number("resid_pdrop", {FIELD(dropout.resid)}, 0.0), without_effect("embd_pdrop"), rope({}),
                          always_false("attention_bias", "expected false: the class has no biases; remove this key"),
                          always_false("mlp_bias", "expected false: the class has no biases; remove this key"),
                          always_false("lm_head_bias", "expected false: the class has no biases; remove this key")}),
          .tensors = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"}};
}

}  // namespace ashlar::hf
