// The eps of the norms is always 1e-5.
#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family xglm() {
  return {.class_name = "XGLMForCausalLM",
          .model_type = "xglm",
          .base = {.norm = kLayerNorm,
                   .bias = kAllBiasesButHead,
                   .ffn = kUngated,
                   .pos = {.type = model::PosType::kSinusoidal, .learned_offset = 2}},
          .rows = joined(
              {size({"vocab_size"}, {FIELD(vocab_size)}, 256008), positions({"max_position_embeddings"}, 2048),
               size({"d_model", "hidden_size"}, {FIELD(d_model)}, 1024),
               size({"num_layers", "num_hidden_layers"}, {FIELD(n_layers)}, 24),
               size({"attention_heads", "num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 16),
               size({"ffn_dim"}, {FIELD(d_ff)}, 4096), head_dim(HeadDim::kDerived),
               activation("activation_function", "gelu"),
               number("dropout", {FIELD(dropout.embed), FIELD(dropout.resid)}, 0.1),
               number("attention_dropout", {FIELD(dropout.attn)}, 0.1), embedding_scale("scale_embedding", true)},
              fairseq_dropouts()),
          .tied_by_default = true,
          .init_std_key = "init_std",
          .tensors = fairseq_tensors({.norm_final = "layer_norm", .buffers = {"embed_positions.weights"}})};
}

}  // namespace ashlar::hf
