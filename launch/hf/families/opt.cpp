// The eps of the norms is always 1e-5. There is no dropout on the embedding.
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::NormPlacement;

void elementwise_affine(model::ModelConfig& m, bool affine) {
  if (!affine) m.norm.affine = model::NormAffine::kNone;
}

/// word_embed_proj_dim, the width of the token embedding table. Null or absent: d_model.
Row table_width() {
  constexpr const char* kKey = "word_embed_proj_dim";
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const int64_t width = r.optional_size({kKey}).value_or(c.model.d_model);
                if (width != c.model.d_model) c.model.embed_dim = width;
              },
          .write = [=](Json& j, const HfConfig& c) { j[kKey] = c.model.table_width(); }};
}

/// Post-norm models have no final norm.
void norm_before(model::ModelConfig& m, bool before) {
  m.norm.placement = before ? NormPlacement::kPre : NormPlacement::kPost;
  m.norm.final = before;
}
bool has_norm_before(const model::ModelConfig& m) { return m.norm.placement == NormPlacement::kPre; }

void without_final_norm(model::ModelConfig& m, bool removed) { m.norm.final = m.norm.final && !removed; }

}  // namespace

Family opt() {
  return {
      .class_name = "OPTForCausalLM",
      .model_type = "opt",
      .base = {.norm = kLayerNorm,
               .bias = kAllBiasesButHead,
               .ffn = kUngated,
               .pos = {.type = model::PosType::kLearned, .learned_offset = 2}},
      .rows = joined({size({"vocab_size"}, {FIELD(vocab_size)}, 50272), positions({"max_position_embeddings"}, 2048),
                      size({"hidden_size"}, {FIELD(d_model)}, 768), size({"num_hidden_layers"}, {FIELD(n_layers)}, 12),
                      size({"num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 12),
                      size({"ffn_dim"}, {FIELD(d_ff)}, 3072), head_dim(HeadDim::kDerived),
                      activation("activation_function", "relu"), number("dropout", {FIELD(dropout.resid)}, 0.1),
                      number("attention_dropout", {FIELD(dropout.attn)}, 0.0), table_width(),
                      flag("layer_norm_elementwise_affine", true, elementwise_affine,
                           [](const model::ModelConfig& m) { return m.norm.affine != model::NormAffine::kNone; }),
                      flag("do_layer_norm_before", true, norm_before, has_norm_before),
                      flag("_remove_final_layer_norm", false, without_final_norm,
                           [](const model::ModelConfig& m) { return has_norm_before(m) && !m.norm.final; }),
                      flag("enable_bias", {FIELD(bias.qkv), FIELD(bias.attn_out), FIELD(bias.ffn)}, true)},
                     fairseq_dropouts()),
      .tied_by_default = true,
      .init_std_key = "init_std",
      .tensors = fairseq_tensors({.tokens = "decoder.embed_tokens",
                                  .positions = "decoder.embed_positions",
                                  .project_in = "decoder.project_in",
                                  .project_out = "decoder.project_out",
                                  .norm_final = "decoder.final_layer_norm",
                                  .layers = "decoder.layers.",
                                  .buffers = {}})};
}

}  // namespace ashlar::hf
