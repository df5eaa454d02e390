// Classes whose own are windows, ALiBi, clipping: what config.json says of each.
#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/hf/common_keys.h"
#include "launch/hf/family_tables.h"
#include "launch/hf/neutral_keys.h"

// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormAffine;
using model::PosType;

constexpr model::FfnConfig kUngatedGelu = {.act = Activation::kGeluErf, .gated = false};

/// q, k and v are held in [-c, c]; null: nothing is.
void read_clip(JsonReader& r, HfConfig& c) { c.model.attn.clip_qkv = r.optional_number({"clip_qkv"}); }
void write_clip(Json& j, const ModelConfig& m) {
  j["clip_qkv"] = m.attn.clip_qkv ? Json(*m.attn.clip_qkv) : Json(nullptr);
}

/// Mistral and what is made of it: `types` where its layers may differ.
Rows mistral_rows(bool types) {
  return joined(usual_rows({32000, 4096 * 32, 4096, 32, 32, 14336}, "silu", "rms_norm_eps", 1e-6),
                {kv_heads(8), head_dim(HeadDim::kWritten), windows({.absent = 4096, .types = types}),
                 rope({.whole_heads = true})});
}

/// The layers of GPT-Neo: attention_types is a list of [kinds, times], attention_layers the same written out.
std::vector<int64_t> read_neo_layers(JsonReader& r, int64_t window, int64_t n_layers) {
  std::vector<std::string> kinds;
  const nlohmann::json* types = r.raw("attention_types");
  const nlohmann::json usual = nlohmann::json::array({{{"global", "local"}, 12}});
  try {
    for (const nlohmann::json& group : types == nullptr ? usual : *types) {
      for (int64_t n = 0; n < group.at(1).get<int64_t>() && std::ssize(kinds) <= n_layers; ++n) {
        for (const nlohmann::json& kind : group.at(0)) kinds.push_back(kind.get<std::string>());
      }
    }
  } catch (const nlohmann::json::exception&) {
    r.refuse("attention_types", "expected a list of [[\"global\" or \"local\", ...], times]");
    return {};
  }
  std::vector<int64_t> found;
  for (const std::string& kind : kinds) {
    if (kind != "global" && kind != "local") r.refuse("attention_types", "its kinds are \"global\" and \"local\"");
    found.push_back(kind == "local" ? window : -1);
  }
  if (std::ssize(found) != n_layers) {
    r.refuse("attention_types", "it has ", std::ssize(found), " or more layers, expected ", n_layers);
    return {};
  }
  if (const nlohmann::json* layers = r.raw("attention_layers"); layers != nullptr && *layers != nlohmann::json(kinds)) {
    r.refuse("attention_layers", "attention_types says otherwise; remove one");
  }
  return found;
}

}  // namespace

ClassTable mistral() { return {.base = {.norm = kRmsNorm}, .rows = mistral_rows(false)}; }

ClassTable ministral() { return {.base = {.norm = kRmsNorm}, .rows = mistral_rows(true)}; }

ClassTable starcoder2() {
  return {
      .base = {.norm = kLayerNorm, .ffn = {.act = Activation::kGeluTanh, .gated = false}},
      .rows = joined(usual_rows({49152, 4096, 3072, 30, 24, 12288}, "gelu_pytorch_tanh", "norm_epsilon", 1e-5),
                     {kv_heads(2), head_dim(HeadDim::kWrittenIfNeeded),
                      flag("use_bias", {AXIS(bias.qkv), AXIS(bias.attn_out), AXIS(bias.ffn)}, true),
                      number("residual_dropout", {AXIS(dropout.resid)}, 0.0),
                      number("embedding_dropout", {AXIS(dropout.embed)}, 0.0), windows({.types = false}),
                      // Of the published files: what the class has without a choice; it reads hidden_act, norm_epsilon.
                      ignored({"mlp_type", "norm_type", "layer_norm_epsilon", "activation_function"}),
                      rope({.whole_heads = true})})};
}

ClassTable gpt_neo() {
  const Row layers = {.read =
                          [](JsonReader& r, HfConfig& c) {
                            const int64_t window = r.size({"window_size"}, 256);
                            const auto found = read_neo_layers(r, window, c.model.n_layers);
                            if (!found.empty()) c.model.attn.window_cycle = model::shortest_cycle(found);
                          },
                      .write =
                          [](Json& j, const HfConfig& c) {
                            Json kinds = Json::array();
                            j["window_size"] = 256;
                            for (const int64_t window : model::layer_windows(c.model)) {
                              kinds.push_back(window > 0 ? "local" : "global");
                              if (window > 0) j["window_size"] = window;
                            }
                            j["attention_types"] = Json::array({Json::array({kinds, 1})});
                            j["attention_layers"] = kinds;
                          }};
  return {
      .base = {.norm = kLayerNorm,
               .bias = {.attn_out = true, .ffn = true},
               .ffn = kUngatedGelu,
               .pos = {.type = PosType::kLearned},
               .attn = {.scale = 1.0}},  // scores are not divided by the root of head_dim
      .rows = {
          size({"vocab_size"}, {AXIS(vocab_size)}, 50257), positions({"max_position_embeddings"}, 2048),
          size({"hidden_size"}, {AXIS(d_model)}, 2048), size({"num_layers", "num_hidden_layers"}, {AXIS(n_layers)}, 24),
          size({"num_heads", "num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 16),
          size_or({"intermediate_size"}, AXIS(d_ff), four_widths), head_dim(HeadDim::kDerived), layers,
          activation("activation_function", "gelu_new"), number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-5),
          number("embed_dropout", {AXIS(dropout.embed)}, 0.0), number("attention_dropout", {AXIS(dropout.attn)}, 0.0),
          number("resid_dropout", {AXIS(dropout.resid)}, 0.0)}};
}

ClassTable mpt() {
  // What the class has whatever these keys say.
  const auto unread = [](const JsonReader& r, HfConfig& c, const char* key, const nlohmann::json* value,
                         const nlohmann::json& has) {
    if (value == nullptr || *value == has) return;
    c.notes.push_back(str_cat(r.shown(key), " has no effect in ", class_name(c.family), ", which has ", has.dump()));
  };
  const Row fixed = {.read = [=](JsonReader& r, HfConfig& c) {
    c.model.d_ff = 4 * c.model.d_model;
    unread(r, c, "expansion_ratio", r.raw("expansion_ratio"), 4);
    unread(r, c, "no_bias", r.raw("no_bias"), true);
    unread(r, c, "logit_scale", r.raw("logit_scale"), nullptr);
    unread(r, c, "resid_pdrop", r.raw("resid_pdrop"), 0.0);
    unread(r, c, "emb_pdrop", r.raw("emb_pdrop"), 0.0);
    r.ignore({"learned_pos_emb", "embedding_fraction", "norm_type"});
  }};
  const Row attention = {
      .read =
          [=](JsonReader& r, HfConfig& c) {
            const nlohmann::json* object = r.object("attn_config");
            if (object == nullptr) return;
            JsonReader a = r.nested(*object, "attn_config.");
            read_clip(a, c);
            if (const auto scale = a.optional_number({"softmax_scale"})) c.model.attn.scale = *scale;
            // On the probabilities, and on the output of both branches.
            c.model.dropout.attn = c.model.dropout.resid = a.number({"attn_pdrop"}, 0.0);
            unread(a, c, "alibi", a.raw("alibi"), true);
            unread(a, c, "alibi_bias_max", a.raw("alibi_bias_max"), 8);
            unread(a, c, "qk_ln", a.raw("qk_ln"), false);
            if (a.boolean({"prefix_lm"}, false)) a.refuse("prefix_lm", "attention is causal always; expected false");
            if (a.text({"attn_type"}, "multihead_attention") != "multihead_attention")
              a.refuse("attn_type", "the class has one KV head a head; expected multihead_attention");
            a.ignore({"attn_impl", "attn_uses_sequence_id"});
            HfConfig none;  // it is a config object of transformers, with the keys that all of these have
            read_common_keys(a, none);
            accept_neutral_keys(a);
            for (const std::string& key : a.unread_keys()) a.refuse(key.c_str(), "the class is not known to read it");
          },
      .write =
          [](Json& j, const HfConfig& c) {
            Json a = {{"attn_type", "multihead_attention"},
                      {"attn_pdrop", c.model.dropout.attn},
                      {"alibi", true},
                      {"alibi_bias_max", 8}};
            a["softmax_scale"] = c.model.attn.scale;
            write_clip(a, c.model);
            j["attn_config"] = std::move(a);
            j["no_bias"] = true;
            j["expansion_ratio"] = 4;
          }};
  return {.base = {.norm = {.variant = {.type = NormType::kLayerNorm}, .affine = NormAffine::kScale},
                   .ffn = kUngatedGelu,
                   .pos = {.type = PosType::kAlibi}},
          .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 50368), positions({"max_seq_len"}, 2048),
                   size({"d_model", "hidden_size"}, {AXIS(d_model)}, 2048),
                   size({"n_layers", "num_hidden_layers"}, {AXIS(n_layers)}, 24),
                   size({"n_heads", "num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 16),
                   head_dim(HeadDim::kDerived), number("layer_norm_epsilon", {AXIS(norm.variant.eps)}, 1e-5), fixed,
                   attention}};
}

ClassTable olmo() {
  const Row clip = {.read = read_clip, .write = [](Json& j, const HfConfig& c) { write_clip(j, c.model); }};
  return {.base = {.norm = {.variant = {.type = NormType::kLayerNorm, .eps = 1e-5}, .affine = NormAffine::kNone}},
          .rows = {size({"vocab_size"}, {AXIS(vocab_size)}, 50304), positions({"max_position_embeddings"}, 2048),
                   size({"hidden_size"}, {AXIS(d_model)}, 4096), size({"num_hidden_layers"}, {AXIS(n_layers)}, 32),
                   size({"num_attention_heads"}, {AXIS(n_heads), AXIS(n_kv_heads)}, 32),
                   size({"intermediate_size"}, {AXIS(d_ff)}, 11008), activation("hidden_act", "silu"),
                   number("attention_dropout", {AXIS(dropout.attn)}, 0.0), kv_heads(), head_dim(HeadDim::kDerived),
                   flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false), clip,
                   rope({.whole_heads = true})}};
}

Row falcon_positions() {
  // Falcon divides the sum of score and bias by the root of head_dim.
  const auto scale = [](const ModelConfig& m) { return 1.0 / std::sqrt(static_cast<double>(m.head_dim)); };
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                if (!r.boolean({"alibi"}, false)) return;
                c.model.pos = {.type = PosType::kAlibi, .alibi_scale = scale(c.model)};
                c.model.rope = {};
              },
          .write = [](Json& j, const HfConfig& c) { j["alibi"] = c.model.pos.type == PosType::kAlibi; }};
}

}  // namespace ashlar::hf
