#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

void set_qk_norm(model::ModelConfig& m, bool on) { m.qk_norm.kind = on ? model::QkNorm::kHead : model::QkNorm::kNone; }
bool has_qk_norm(const model::ModelConfig& m) { return m.qk_norm.kind == model::QkNorm::kHead; }

}  // namespace

Family glm4_moe() {
  return {.class_name = "Glm4MoeForCausalLM",
          .model_type = "glm4_moe",
          .base = {.norm = kRmsNorm, .moe = sigmoid_with_selection_bias()},
          .rows = joined(llama_rows({151552, 131072, 4096, 46, 96, 10944}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(8), head_dim(HeadDim::kWritten), flag("attention_bias", {FIELD(bias.qkv)}, false),
                          flag("use_qk_norm", false, set_qk_norm, has_qk_norm), qk_norm_eps(),
                          experts({"n_routed_experts", "num_local_experts"}, 128),
                          size({"moe_intermediate_size"}, {FIELD(moe.d_ff)}, 1408),
                          size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 8), shared_experts("n_shared_experts", 1),
                          demand(has_shared_experts), first_layers(1), groups_of_experts(1, 1), renormalized(true),
                          number("routed_scaling_factor", {FIELD(moe.rule.scale)}, 1.0), further_layers(),
                          ignored({"output_router_logits", "router_aux_loss_coef"}), rope({.fraction = 0.5})}),
          .tensors = {.expert_forms = {kEachExpert, kFusedExperts}, .shared = "mlp.shared_experts."}};
}

}  // namespace ashlar::hf
