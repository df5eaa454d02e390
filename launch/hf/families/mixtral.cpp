#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family mixtral() {
  return {.class_name = "MixtralForCausalLM",
          .model_type = "mixtral",
          .base = {.norm = kRmsNorm, .moe = {.balance = model::Balance::kNone}},
          .rows = joined(
              llama_rows({32000, 131072, 4096, 32, 32, 14336}, "silu", "rms_norm_eps", 1e-5),
              {kv_heads(8), head_dim(HeadDim::kWrittenIfNeeded), experts({"num_local_experts", "num_experts"}, 8),
               expert_width(), size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 2), router_losses(), router_noise(),
               windows({.types = false}), rope({.base = 1e6, .whole_heads = true})}),
          .tensors = {.router = "block_sparse_moe.gate",
                      .router_alias = "mlp.gate",
                      .expert_forms = {{.experts = "block_sparse_moe.experts.", .gate = "w1", .up = "w3", .down = "w2"},
                                       kFusedExperts,
                                       {.experts = "block_sparse_moe.experts.", .fused = true}}}};
}

}  // namespace ashlar::hf
