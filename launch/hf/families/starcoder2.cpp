#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family starcoder2() {
  return {.class_name = "Starcoder2ForCausalLM",
          .model_type = "starcoder2",
          .base = {.norm = kLayerNorm, .ffn = {.act = Activation::kGeluTanh, .gated = false}},
          .rows = joined(llama_rows({49152, 4096, 3072, 30, 24, 12288}, "gelu_pytorch_tanh", "norm_epsilon", 1e-5),
                         {kv_heads(2), head_dim(HeadDim::kWrittenIfNeeded),
                          flag("use_bias", {FIELD(bias.qkv), FIELD(bias.attn_out), FIELD(bias.ffn)}, true),
                          number("residual_dropout", {FIELD(dropout.resid)}, 0.0),
                          number("embedding_dropout", {FIELD(dropout.embed)}, 0.0), windows({.types = false}),
                          // The published files have these keys; the class reads hidden_act and norm_epsilon instead.
                          ignored({"mlp_type", "norm_type", "layer_norm_epsilon", "activation_function"}),
                          rope({.whole_heads = true})}),
          .tied_by_default = true,
          .tensors = {.up = "mlp.c_fc", .down = "mlp.c_proj"}};
}

}  // namespace ashlar::hf
