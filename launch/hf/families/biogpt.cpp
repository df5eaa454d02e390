// The eps of the norms is always 1e-5; layer_norm_eps is not read.
#include "launch/hf/shared/tables.h"

namespace ashlar::hf {

Family biogpt() {
  return {
      .class_name = "BioGptForCausalLM",
      .model_type = "biogpt",
      .base = {.norm = kLayerNorm,
               .bias = kAllBiasesButHead,
               .ffn = kUngated,
               .pos = {.type = model::PosType::kLearned, .learned_offset = 2}},
      .rows = joined({size({"vocab_size"}, {FIELD(vocab_size)}, 42384), positions({"max_position_embeddings"}, 1024),
                      size({"hidden_size"}, {FIELD(d_model)}, 1024), size({"num_hidden_layers"}, {FIELD(n_layers)}, 24),
                      size({"num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 16),
                      size({"intermediate_size"}, {FIELD(d_ff)}, 4096), head_dim(HeadDim::kDerived),
                      activation("hidden_act", "gelu"),
                      number("hidden_dropout_prob", {FIELD(dropout.embed), FIELD(dropout.resid)}, 0.1),
                      number("attention_probs_dropout_prob", {FIELD(dropout.attn)}, 0.1),
                      embedding_scale("scale_embedding", true), ignored({"layer_norm_eps"})},
                     fairseq_dropouts()),
      .tied_by_default = true,
      .tensors = fairseq_tensors({.prefix = "biogpt.",
                                  .positions = "embed_positions",
                                  .norm_final = "layer_norm",
                                  .head = "output_projection",
                                  .buffers = {}})};
}

}  // namespace ashlar::hf
