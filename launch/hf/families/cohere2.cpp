#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family cohere2() {
  return {.class_name = "Cohere2ForCausalLM",
          .model_type = "cohere2",
          .base = {.norm = kLayerNormWithoutBias, .block = kParallel, .rope = kInterleaved},
          .rows = joined(llama_rows({256000, 8192, 8192, 40, 64, 22528}, "silu", "layer_norm_eps", 1e-5),
                         {kv_heads(), head_dim(HeadDim::kDerived), attention_bias(),
                          number("logit_scale", {FIELD(logit_scale)}, 0.0625),
                          windows({.absent = 4096, .full_every = 4, .every_key = "sliding_window_pattern"}),
                          rope({.whole_heads = true}),
                          // Layers with full attention have no rotary positions.
                          derived([](model::ModelConfig& m) { m.rope.global_enabled = false; }),
                          // The published files have these keys, with the values that the class always uses.
                          ignored({"layer_switch", "order_of_interleaved_layers", "position_embedding_type",
                                   "rotary_pct", "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                                   "use_parallel_embedding"})}),
          .tied_by_default = true};
}

}  // namespace ashlar::hf
