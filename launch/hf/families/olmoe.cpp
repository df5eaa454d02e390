#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family olmoe() {
  return {
      .class_name = "OlmoeForCausalLM",
      .model_type = "olmoe",
      .base = {.norm = kRmsNorm, .moe = {.balance = model::Balance::kNone}, .qk_norm = {.kind = model::QkNorm::kFull}},
      .rows = joined(llama_rows({50304, 4096, 2048, 16, 16, 2048}, "silu", "rms_norm_eps", 1e-5),
                     {kv_heads(), head_dim(HeadDim::kDerived), attention_bias(), qk_norm_eps(), clip_qkv(),
                      experts({"num_experts", "num_local_experts"}, 64), expert_width(),
                      size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 8), renormalized(false), router_losses(),
                      rope({.whole_heads = true})}),
      .tensors = {.expert_forms = {kEachExpert, kFusedExperts}}};
}

}  // namespace ashlar::hf
