#include <nlohmann/json.hpp>
#include <utility>

#include "launch/hf/class_rows.h"

// Classes that descend from GPT, GPT-NeoX or from fairseq's decoder.
// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::NormAffine;
using model::NormPlacement;
using model::PosType;
using model::QkNorm;

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
  // Behind the additions there is no final norm, whatever the second key says.
  const Row placement = {.read =
                             [](JsonReader& r, HfConfig& c) {
                               const bool before = r.boolean({"do_layer_norm_before"}, true);
                               c.model.norm.placement = before ? NormPlacement::kPre : NormPlacement::kPost;
                               c.model.norm.final = !r.boolean({"_remove_final_layer_norm"}, false) && before;
                             },
                         .write =
                             [](Json& j, const HfConfig& c) {
                               const bool before = c.model.norm.placement == NormPlacement::kPre;
                               j["do_layer_norm_before"] = before;
                               j["_remove_final_layer_norm"] = before && !c.model.norm.final;
                             }};
  return {affine, placement, flag("enable_bias", {AXIS(bias.qkv), AXIS(bias.attn_out), AXIS(bias.ffn)}, true)};
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

/// The activations that OpenAI GPT knows, by its own names.
Row openai_activation() {
  constexpr std::pair<const char*, Activation> kNames[] = {{"gelu", Activation::kGeluTanh},
                                                           {"relu", Activation::kRelu},
                                                           {"silu", Activation::kSilu},
                                                           {"swish", Activation::kSilu}};
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                const std::string name = r.text({"afn"}, "gelu");
                for (const auto& [spelling, act] : kNames) {
                  if (name != spelling) continue;
                  c.model.ffn.act = act;
                  return;
                }
                r.refuse("afn", "the class knows gelu (its tanh form), relu, silu and swish");
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                for (const auto& [spelling, act] : kNames) {
                  if (act != c.model.ffn.act || j.contains("afn")) continue;
                  j["afn"] = spelling;
                }
              }};
}

/// An FFN of four widths, which no key says.
Row four_widths_always() {
  return {.read = [](JsonReader&, HfConfig& c) { c.model.d_ff = four_widths(c.model); }};
}

}  // namespace

ClassTable openai_gpt() {
  model::NormConfig norm = kLayerNorm;
  norm.placement = NormPlacement::kPost;
  norm.final = false;
  return {.base = {.norm = norm, .bias = kAllButHead, .ffn = kUngated, .pos = {.type = PosType::kLearned}},
          .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 40478),
                   positions({"n_positions", "max_position_embeddings"}, 512),
                   size({"n_embd", "hidden_size"}, {AXIS(d_model)}, 768),
                   size({"n_layer", "num_hidden_layers"}, {AXIS(n_layers)}, 12),
                   size({"n_head", "num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 12),
                   head_dim(HeadDim::kDerived), four_widths_always(), openai_activation(),
                   number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-5),
                   number("embd_pdrop", {AXIS(dropout.embed)}, 0.1), number("attn_pdrop", {AXIS(dropout.attn)}, 0.1),
                   number("resid_pdrop", {AXIS(dropout.resid)}, 0.1)}};
}

ClassTable bloom() {
  // The longest context is no part of the class: ALiBi needs none.
  const Row length = {
      .read = [](JsonReader& r,
                 HfConfig& c) { c.extras.max_positions = r.optional_size({"seq_length"}).value_or(2048); },
      .write = [](Json& j, const HfConfig& c) { j["seq_length"] = c.extras.max_positions; }};
  model::NormConfig norm = kLayerNorm;
  norm.embed = true;
  // Its GELU has the tanh form, with 0.79788456 for sqrt(2/pi): 2e-9 from ours.
  return {.base = {.norm = norm,
                   .bias = kAllButHead,
                   .ffn = {.act = Activation::kGeluTanh, .gated = false},
                   .pos = {.type = PosType::kAlibi}},
          .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 250880), length,
                   size({"hidden_size", "n_embed"}, {AXIS(d_model)}, 64),
                   size({"n_layer", "num_hidden_layers"}, {AXIS(n_layers)}, 2),
                   size({"n_head", "num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 8),
                   head_dim(HeadDim::kDerived), four_widths_always(),
                   number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-5),
                   number("hidden_dropout", {AXIS(dropout.resid)}, 0.0),
                   number("attention_dropout", {AXIS(dropout.attn)}, 0.0),
                   always_false("apply_residual_connection_post_layernorm",
                                "the stream is what norm.placement adds to; expected false"),
                   // Of the published files; nothing reads them.
                   ignored({"n_inner", "offset_alibi"})}};
}

ClassTable persimmon() {
  const Row qk_norm = {
      .read =
          [](JsonReader& r, HfConfig& c) {
            if (!r.boolean({"qk_layernorm"}, true)) return;
            c.model.qk_norm = {
                .kind = QkNorm::kHead, .type = NormType::kLayerNorm, .bias = true, .eps = c.model.norm.variant.eps};
          },
      .write = [](Json& j, const HfConfig& c) { j["qk_layernorm"] = c.model.qk_norm.kind != QkNorm::kNone; }};
  const Row whole_heads = {.read = [](JsonReader& r, HfConfig& c) {
    const auto said = r.optional_size({"num_key_value_heads"});
    if (said && *said != c.model.n_heads)
      r.refuse("num_key_value_heads", "the class has one KV head a head; expected ", c.model.n_heads);
  }};
  return {.base = {.norm = kLayerNorm, .bias = kAllButHead, .ffn = kUngated},
          .rows = joined(
              usual_rows({262144, 16384, 4096, 36, 64, 16384}, "relu2", "layer_norm_eps", 1e-5),
              {head_dim(HeadDim::kDerived), whole_heads, qk_norm,
               always_zero("hidden_dropout", "it acts on the FFN branch alone, dropout.resid on both; expected 0"),
               rope({.base = 25000.0, .fraction = 0.5})})};
}

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
          .rows = joined(gpt_rows({50257, 1024, 768, 12, 12, 0}, 0.1), {multi_query, scale_attn_weights()})};
}

}  // namespace ashlar::hf
