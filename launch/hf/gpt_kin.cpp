#include <nlohmann/json.hpp>

#include "launch/hf/class_rows.h"

// Classes that descend from GPT-2 or from fairseq's decoder.
// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::NormAffine;
using model::PosType;

constexpr model::BiasConfig kAllButHead = {.qkv = true, .attn_out = true, .ffn = true};

/// What none of them has as an axis: whole layers or activations that are dropped.
Rows no_other_dropout() {
  return {always_zero("layerdrop", "dropped layers are not an axis; expected 0"),
          always_zero("activation_dropout", "dropout inside the FFN is not an axis; expected 0")};
}

/// The flags of norms and biases, and where the norms stand.
Rows opt_flags() {
  const Row affine = {.read =
                          [](JsonReader& r, HfConfig& c) {
                            if (!r.boolean({"layer_norm_elementwise_affine"}, true))
                              c.model.norm.affine = NormAffine::kNone;
                          },
                      .write =
                          [](Json& j, const HfConfig& c) {
                            j["layer_norm_elementwise_affine"] = c.model.norm.affine != NormAffine::kNone;
                          }};
  const Row before = {.read =
                          [](JsonReader& r, HfConfig&) {
                            if (!r.boolean({"do_layer_norm_before"}, true)) {
                              r.refuse("do_layer_norm_before",
                                       "norms behind the branches are not read of this class; expected true");
                            }
                          },
                      .write = [](Json& j, const HfConfig&) { j["do_layer_norm_before"] = true; }};
  const Row final_norm = {
      .read = [](JsonReader& r, HfConfig& c) { c.model.norm.final = !r.boolean({"_remove_final_layer_norm"}, false); },
      .write = [](Json& j, const HfConfig& c) { j["_remove_final_layer_norm"] = !c.model.norm.final; }};
  return {affine, before, final_norm, flag("enable_bias", {AXIS(bias.qkv), AXIS(bias.attn_out), AXIS(bias.ffn)}, true)};
}

/// The width of the token table; null or absent: that of the stream.
Row opt_table_width() {
  constexpr const char* kKey = "word_embed_proj_dim";
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const int64_t width = r.optional_size({kKey}).value_or(c.model.d_model);
                if (width != c.model.d_model) c.model.embed_dim = width;
              },
          .write = [=](Json& j, const HfConfig& c) { j[kKey] = c.model.table_width(); }};
}

}  // namespace

ClassTable opt() {
  // eps is 1e-5 always. The embedding is not dropped.
  return {
      .base = {.norm = kLayerNorm,
               .bias = kAllButHead,
               .ffn = kUngated,
               .pos = {.type = PosType::kLearned, .learned_offset = 2}},
      .rows = joined({size({"vocab_size"}, {AXIS(vocab_size)}, 50272), positions({"max_position_embeddings"}, 2048),
                      size({"hidden_size"}, {AXIS(d_model)}, 768), size({"num_hidden_layers"}, {AXIS(n_layers)}, 12),
                      size({"num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 12),
                      size({"ffn_dim"}, {AXIS(d_ff)}, 3072), head_dim(HeadDim::kDerived),
                      activation("activation_function", "relu"), number("dropout", {AXIS(dropout.resid)}, 0.1),
                      number("attention_dropout", {AXIS(dropout.attn)}, 0.0), opt_table_width()},
                     joined(opt_flags(), no_other_dropout()))};
}

ClassTable biogpt() {
  // eps is 1e-5 whatever layer_norm_eps says.
  return {
      .base = {.norm = kLayerNorm,
               .bias = kAllButHead,
               .ffn = kUngated,
               .pos = {.type = PosType::kLearned, .learned_offset = 2}},
      .rows = joined({size({"vocab_size"}, {AXIS(vocab_size)}, 42384), positions({"max_position_embeddings"}, 1024),
                      size({"hidden_size"}, {AXIS(d_model)}, 1024), size({"num_hidden_layers"}, {AXIS(n_layers)}, 24),
                      size({"num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 16),
                      size({"intermediate_size"}, {AXIS(d_ff)}, 4096), head_dim(HeadDim::kDerived),
                      activation("hidden_act", "gelu"),
                      number("hidden_dropout_prob", {AXIS(dropout.embed), AXIS(dropout.resid)}, 0.1),
                      number("attention_probs_dropout_prob", {AXIS(dropout.attn)}, 0.1),
                      embedding_scale("scale_embedding", true), ignored({"layer_norm_eps"})},
                     no_other_dropout())};
}

ClassTable xglm() {
  // eps is 1e-5 always.
  return {
      .base = {.norm = kLayerNorm,
               .bias = kAllButHead,
               .ffn = kUngated,
               .pos = {.type = PosType::kSinusoidal, .learned_offset = 2}},
      .rows = joined({size({"vocab_size"}, {AXIS(vocab_size)}, 256008), positions({"max_position_embeddings"}, 2048),
                      size({"d_model", "hidden_size"}, {AXIS(d_model)}, 1024),
                      size({"num_layers", "num_hidden_layers"}, {AXIS(n_layers)}, 24),
                      size({"attention_heads", "num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 16),
                      size({"ffn_dim"}, {AXIS(d_ff)}, 4096), head_dim(HeadDim::kDerived),
                      activation("activation_function", "gelu"),
                      number("dropout", {AXIS(dropout.embed), AXIS(dropout.resid)}, 0.1),
                      number("attention_dropout", {AXIS(dropout.attn)}, 0.1), embedding_scale("scale_embedding", true)},
                     no_other_dropout())};
}

ClassTable codegen() {
  const Row four_groups = {.read = [](JsonReader&, HfConfig&) {},
                           .limit =
                               [](const model::ModelConfig& m) {
                                 return m.n_heads % 4 == 0 ? std::string()
                                                           : str_cat("model.n_heads = ", m.n_heads,
                                                                     ": CodeGenForCausalLM has a multiple of 4");
                               }};
  const Row readable = {.read = [](JsonReader& r, HfConfig& c) {
    if (c.model.n_heads % 4 != 0)
      r.add_error(
          str_cat("n_head = ", c.model.n_heads, ": the class has its heads in 4 groups; expected a multiple of 4"));
  }};
  return {.base = {.norm = kLayerNorm,
                   .block = kParallel,
                   .bias = {.ffn = true, .lm_head = true},
                   .ffn = kUngated,
                   .rope = kInterleaved},
          .rows = joined(gpt_rows({50400, 2048, 4096, 28, 16, 0}, 0.0),
                         {rotary_dim(), four_groups, readable, ignored({"rotary", "scale_attn_weights"})})};
}

ClassTable gpt_bigcode() {
  const Row multi_query = {.read =
                               [](JsonReader& r, HfConfig& c) {
                                 c.model.n_kv_heads = r.boolean({"multi_query"}, true) ? 1 : c.model.n_heads;
                                 const auto said = r.optional_size({"num_key_value_heads"});
                                 if (said && *said != c.model.n_kv_heads) {
                                   r.refuse("num_key_value_heads", "multi_query makes it ", c.model.n_kv_heads,
                                            "; remove it");
                                 }
                               },
                           .write = [](Json& j, const HfConfig& c) { j["multi_query"] = c.model.n_kv_heads == 1; }};
  return {.base = {.norm = kLayerNorm, .bias = kAllButHead, .ffn = kUngated, .pos = {.type = PosType::kLearned}},
          .rows = joined(gpt_rows({50257, 1024, 768, 12, 12, 0}, 0.1),
                         {multi_query, scale_attn_weights(),
                          // The order of roundings in half precision, and how an inference server pads.
                          ignored({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
                                   "pad_key_length", "max_batch_size", "max_sequence_length", "pre_allocate_kv_cache",
                                   "validate_runner_input"})})};
}

}  // namespace ashlar::hf
