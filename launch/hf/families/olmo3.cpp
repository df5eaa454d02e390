#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family olmo3() {
  return {.class_name = "Olmo3ForCausalLM",
          .model_type = "olmo3",
          .base = {.norm = rms_norm(model::NormPlacement::kOutput), .qk_norm = {.kind = model::QkNorm::kFull}},
          .rows = joined(
              llama_rows({50304, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(), qk_norm_eps(),
               windows({.absent = 4096, .full_every = 4}), rope_by_kind({.base = 500000.0, .local_base = 500000.0})})};
}

}  // namespace ashlar::hf
