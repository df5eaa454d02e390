#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family granitemoe() {
  return {.class_name = "GraniteMoeForCausalLM",
          .model_type = "granitemoe",
          .base = {.norm = kRmsNorm, .moe = {.balance = model::Balance::kNone}},
          .rows = joined(joined(llama_rows({32000, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-6),
                                {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(),
                                 experts({"num_local_experts"}, 8), expert_width(),
                                 size({"num_experts_per_tok"}, {FIELD(moe.top_k)}, 2), router_losses()}),
                         joined(granite_multipliers(), granite_scales())),
          .tensors = {.router = "block_sparse_moe.router.layer",
                      .router_alias = "block_sparse_moe.router",
                      .expert_forms = {{.experts = "block_sparse_moe.",
                                        .fused = true,
                                        .down = "output_linear.weight",
                                        .gate_up = "input_linear.weight"},
                                       {.experts = "block_sparse_moe.experts.", .fused = true},
                                       {.experts = "block_sparse_moe.experts."}}}};
}

}  // namespace ashlar::hf
