#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::QkNorm;

void use_qk_norm(model::ModelConfig& m, bool normed) {
  if (normed) m.qk_norm = {.kind = QkNorm::kHeadPer, .type = NormType::kLayerNorm, .eps = m.norm.variant.eps};
}

}  // namespace

Family cohere() {
  return {.class_name = "CohereForCausalLM",
          .model_type = "cohere",
          .base = {.norm = kLayerNormWithoutBias, .block = kParallel, .rope = kInterleaved},
          .rows = joined(
              llama_rows({256000, 8192, 8192, 40, 64, 22528}, "silu", "layer_norm_eps", 1e-5),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(),
               flag("use_qk_norm", false, use_qk_norm,
                    [](const model::ModelConfig& m) { return m.qk_norm.kind != QkNorm::kNone; }),
               number("logit_scale", {FIELD(logit_scale)}, 0.0625), rope({.base = 500000.0, .whole_heads = true})}),
          .tied_by_default = true};
}

}  // namespace ashlar::hf
