#include <nlohmann/json.hpp>

#include "launch/hf/common_keys.h"
#include "launch/hf/neutral_keys.h"
#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Reads a key that the class ignores. Adds a note when its value differs from what the class does.
void read_unread(JsonReader& r, HfConfig& c, const char* key, const nlohmann::json& has) {
  const nlohmann::json* value = r.raw(key);
  if (value == nullptr || *value == has) return;
  c.notes.push_back(str_cat(r.shown(key), " has no effect in ", c.family->class_name, ", which has ", has.dump()));
}

void read_fixed(JsonReader& r, HfConfig& c) {
  c.model.d_ff = 4 * c.model.d_model;
  read_unread(r, c, "expansion_ratio", 4);
  read_unread(r, c, "no_bias", true);
  read_unread(r, c, "logit_scale", nullptr);
  read_unread(r, c, "resid_pdrop", 0.0);
  read_unread(r, c, "emb_pdrop", 0.0);
  r.ignore({"learned_pos_emb", "embedding_fraction", "norm_type"});
}

void read_attention(JsonReader& r, HfConfig& c) {
  const nlohmann::json* object = r.object("attn_config");
  if (object == nullptr) return;
  JsonReader a = r.nested(*object, "attn_config.");
  clip_qkv().read(a, c);
  if (const auto scale = a.optional_number({"softmax_scale"})) c.model.attn.scale = *scale;
  // attn_pdrop acts on the attention probabilities and on the outputs of both branches.
  c.model.dropout.attn = c.model.dropout.resid = a.number({"attn_pdrop"}, 0.0);
  read_unread(a, c, "alibi", true);
  read_unread(a, c, "alibi_bias_max", 8);
  read_unread(a, c, "qk_ln", false);
  if (a.boolean({"prefix_lm"}, false))
    a.refuse("prefix_lm", "expected false: only causal attention is supported; use another model");
  if (a.text({"attn_type"}, "multihead_attention") != "multihead_attention")
    a.refuse("attn_type",
             "expected multihead_attention: the class has as many KV heads as query heads; use another model");
  a.ignore({"attn_impl", "attn_uses_sequence_id"});
  HfConfig none;  // attn_config is itself a transformers config, so it may have the keys that every config has
  read_common_keys(a, none);
  accept_neutral_keys(a);
  for (const std::string& key : a.unread_keys())
    a.refuse(key.c_str(), "the class is not known to read this key; remove the key");
}

void write_attention(Json& j, const HfConfig& c) {
  Json a = {{"attn_type", "multihead_attention"},
            {"attn_pdrop", c.model.dropout.attn},
            {"alibi", true},
            {"alibi_bias_max", 8}};
  a["softmax_scale"] = c.model.attn.scale;
  clip_qkv().write(a, c);
  j["attn_config"] = std::move(a);
  j["no_bias"] = true;
  j["expansion_ratio"] = 4;
}

}  // namespace

Family mpt() {
  return {.class_name = "MptForCausalLM",
          .model_type = "mpt",
          .old_class_names = {"MPTForCausalLM"},
          .base = {.norm = kLayerNormWithoutBias, .ffn = kUngatedGelu, .pos = {.type = model::PosType::kAlibi}},
          .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 50368),
                   positions({"max_seq_len"}, 2048),
                   size({"d_model", "hidden_size"}, {FIELD(d_model)}, 2048),
                   size({"n_layers", "num_hidden_layers"}, {FIELD(n_layers)}, 24),
                   size({"n_heads", "num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 16),
                   head_dim(HeadDim::kDerived),
                   number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-5),
                   {.read = read_fixed},
                   {.read = read_attention, .write = write_attention}},
          .tied_by_default = true,
          .tensors = {.prefix = "transformer.",
                      .tokens = "wte",
                      .norm_final = "norm_f",
                      .layers = "blocks.",
                      .norm1 = "norm_1",
                      .norm2 = "norm_2",
                      .qkv = "attn.Wqkv",
                      .attn_out = "attn.out_proj",
                      .up = "ffn.up_proj",
                      .down = "ffn.down_proj"}};
}

}  // namespace ashlar::hf
