#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Reads keys that the class of transformers does not read, but DeepSeek's own code does.
void read_keys_of_deepseek_v3(JsonReader& r, HfConfig&) {
  if (r.text({"scoring_func"}, "sigmoid") != "sigmoid")
    r.refuse("scoring_func", "expected sigmoid, the only score of this class; use another model");
  if (r.text({"topk_method"}, "noaux_tc") != "noaux_tc")
    r.refuse("topk_method", "expected noaux_tc, the only choice of experts in this class; use another model");
  if (r.number({"moe_layer_freq"}, 1) != 1)
    r.refuse("moe_layer_freq", "expected 1: all layers from first_k_dense_replace on have experts; use another model");
  r.ignore({"ep_size", "aux_loss_alpha", "seq_aux", "output_router_logits", "router_aux_loss_coef"});
}

void set_interleaved(model::ModelConfig& m, bool interleaved) {
  m.rope.style = interleaved ? RopeStyle::kInterleaved : RopeStyle::kHalf;
}
bool is_interleaved(const model::ModelConfig& m) { return m.rope.style == RopeStyle::kInterleaved; }

}  // namespace

Family deepseek_v3() {
  return {.class_name = "DeepseekV3ForCausalLM",
          .model_type = "deepseek_v3",
          .base = {.norm = kRmsNorm, .moe = sigmoid_with_selection_bias()},
          .rows = joined(llama_rows({129280, 4096, 7168, 61, 128, 18432}, "silu", "rms_norm_eps", 1e-6),
                         joined({kv_heads(128),
                                 latent_sizes({1536, 512, 128, 64, 128}),
                                 attention_bias(),
                                 experts({"n_routed_experts", "num_local_experts"}, 256),
                                 size({"moe_intermediate_size"}, {FIELD(moe.d_ff)}, 2048),
                                 size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 8),
                                 shared_experts("n_shared_experts", 1),
                                 demand(has_shared_experts),
                                 first_layers(3),
                                 groups_of_experts(8, 4),
                                 renormalized(true),
                                 number("routed_scaling_factor", {FIELD(moe.rule.scale)}, 2.5),
                                 further_layers(),
                                 flag("rope_interleave", true, set_interleaved, is_interleaved),
                                 {.read = read_keys_of_deepseek_v3}},
                                latent_rope(10000.0))),
          .tensors = {.expert_forms = {kEachExpert, kFusedExperts}, .shared = "mlp.shared_experts."}};
}

}  // namespace ashlar::hf
