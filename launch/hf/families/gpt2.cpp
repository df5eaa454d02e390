#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family gpt2() {
  return {.class_name = "GPT2LMHeadModel",
          .model_type = "gpt2",
          .base = {.norm = kLayerNorm,
                   .bias = kAllBiasesButHead,
                   .ffn = kUngated,
                   .pos = {.type = model::PosType::kLearned}},
          .rows = joined(gpt_rows({50257, 1024, 768, 12, 12, 0}, 0.1),
                         {scale_attn_weights(),
                          always_false("scale_attn_by_inverse_layer_idx",
                                       "expected false: a scale per layer is not supported; use another model", true),
                          always_false("add_cross_attention",
                                       "expected false: cross-attention is not supported; use another model")}),
          .tied_by_default = true,
          .init_scheme = model::InitScheme::kGpt2,
          .tensors = gpt_tensors({.positions = "wpe",
                                  .qkv = "attn.c_attn",
                                  .attn_out = "attn.c_proj",
                                  .up = "mlp.c_fc",
                                  .down = "mlp.c_proj",
                                  .transposed = true,
                                  .buffers = {".attn.bias", ".attn.masked_bias"}})};
}

}  // namespace ashlar::hf
