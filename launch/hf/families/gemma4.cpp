#include <map>
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;

/// The values that per_layer_config has for a layer with full attention. They must be the same for all layers with full
/// attention.
struct FullHeads {
  std::optional<int64_t> head_dim, kv_heads;
  bool operator==(const FullHeads&) const = default;
};

/// Returns the entries by layer number. The key of layer 5 is "5" or, since transformers 5.24, "05".
std::map<int64_t, const nlohmann::json*> numbered(const nlohmann::json& by_layer) {
  std::map<int64_t, const nlohmann::json*> entries;
  for (const auto& [key, value] : by_layer.items())
    if (const auto layer = parse_number<int64_t>(key)) entries.emplace(*layer, &value);
  return entries;
}

FullHeads read_per_layer_config(JsonReader& r, const ModelConfig& m) {
  constexpr const char* kKey = "per_layer_config";
  const nlohmann::json* by_layer = r.object(kKey);
  if (by_layer == nullptr) return {};
  const std::vector<int64_t> windows = model::layer_windows(m);
  std::optional<FullHeads> found;
  const std::map<int64_t, const nlohmann::json*> entries = numbered(*by_layer);
  size_t read = 0;
  for (int64_t layer = 0; layer < std::ssize(windows); ++layer) {
    FullHeads heads;
    if (const auto entry = entries.find(layer); entry != entries.end()) {
      ++read;
      if (!entry->second->is_object()) {
        r.add_error(str_cat(kKey, ".", layer, ": expected an object, got a JSON ", entry->second->type_name()));
        continue;
      }
      JsonReader of = r.nested(*entry->second, str_cat(kKey, ".", layer, "."));
      heads = {of.optional_size({"head_dim"}), of.optional_size({"num_key_value_heads"})};
      for (const std::string& key : of.unread_keys())
        of.refuse(key.c_str(), "only head_dim and num_key_value_heads may differ by layer; remove this key");
    }
    if (windows[static_cast<size_t>(layer)] > 0) {
      if (heads != FullHeads{})
        r.refuse(kKey,
                 "expected head_dim and num_key_value_heads only in layers with full attention; remove those of layer ",
                 layer);
      continue;
    }
    if (found && *found != heads)
      r.refuse(kKey,
               "expected the same head_dim and num_key_value_heads in all layers with full attention; use another "
               "model, since they differ in layer ",
               layer);
    found = heads;
  }
  if (read != by_layer->size())
    r.refuse(kKey, "expected only layer numbers from 0 to ", m.n_layers - 1, " as keys; remove the other keys");
  return found.value_or(FullHeads{});
}

/// Reads the heads of the layers with full attention: from per_layer_config in new files, from global_head_dim and
/// num_global_key_value_heads in older files.
void read_full_heads(JsonReader& r, HfConfig& c) {
  ModelConfig& m = c.model;
  constexpr const char *kWidth = "global_head_dim", *kHeads = "num_global_key_value_heads";
  FullHeads old = {r.optional_size({kWidth}), r.optional_size({kHeads})}, heads;
  if (old.kv_heads && !m.attn.k_eq_v) {
    r.add_note(str_cat(kHeads, " has no effect without attention_k_eq_v"));
    old.kv_heads.reset();
  }
  if (r.has("per_layer_config")) {
    heads = read_per_layer_config(r, m);
    const int64_t width = heads.head_dim.value_or(m.head_dim), kv_heads = heads.kv_heads.value_or(m.n_kv_heads);
    if (old.head_dim && *old.head_dim != width)
      r.refuse(kWidth, "expected ", width, ", the width that per_layer_config gives; remove one of these keys");
    if (old.kv_heads && *old.kv_heads != kv_heads)
      r.refuse(kHeads, "expected ", kv_heads, ", the number that per_layer_config gives; remove one of these keys");
  } else {
    heads = old;
    if (!r.has(kWidth)) {
      heads.head_dim = 512;
      r.add_note(str_cat(kWidth, " is absent: using 512, the default of the class"));
    }
  }
  if (heads.head_dim != m.head_dim) m.attn.global_head_dim = heads.head_dim;
  if (heads.kv_heads != m.n_kv_heads) m.attn.global_n_kv_heads = heads.kv_heads;
}

void write_full_heads(Json& j, const HfConfig& c) {
  const model::AttentionConfig& attn = c.model.attn;
  Json heads = Json::object(), by_layer = Json::object();
  if (attn.global_head_dim) heads["head_dim"] = *attn.global_head_dim;
  if (attn.global_n_kv_heads) heads["num_key_value_heads"] = *attn.global_n_kv_heads;
  const std::vector<int64_t> windows = model::layer_windows(c.model);
  for (size_t layer = 0; layer < windows.size(); ++layer)
    if (windows[layer] < 0 && !heads.empty()) by_layer[std::to_string(layer)] = heads;
  j["per_layer_config"] = std::move(by_layer);
  j["global_head_dim"] = attn.global_head_dim.value_or(c.model.head_dim);
  if (attn.k_eq_v && attn.global_n_kv_heads) j["num_global_key_value_heads"] = *attn.global_n_kv_heads;
}

/// The windows of all layers. The last layer always has full attention.
Row windows_but_the_last() {
  const Row kinds = windows({.absent = 512, .full_every = 6});
  const auto read = [=](JsonReader& r, HfConfig& c) {
    kinds.read(r, c);
    std::vector<int64_t> layers = model::layer_windows(c.model);
    if (layers.back() < 0) return;
    layers.back() = -1;
    c.model.attn.window_cycle = model::shortest_cycle(layers);
    r.add_note(str_cat("layer ", layers.size() - 1, ", the last one, has full attention, as always in this class"));
  };
  return {.read = read, .write = kinds.write, .limit = kinds.limit};
}

/// Row for a number for which only 0 is supported; an export writes 0. If the key is absent, the number is `absent`,
/// the default of the class.
Row none_of(const char* key, double absent, const char* why) {
  return {.read =
              [=](JsonReader& r, HfConfig&) {
                if (r.number({key}, absent) != 0) r.refuse(key, why);
              },
          .write = [=](Json& j, const HfConfig&) { j[key] = 0; }};
}

/// "vision" is allowed: it concerns the tokens of an image, which a text does not have.
void refuse_bidirectional(JsonReader& r, HfConfig&) {
  constexpr const char* kKey = "use_bidirectional_attention";
  const nlohmann::json* value = r.raw(kKey);
  if (value != nullptr && *value != "vision" && *value != false)
    r.refuse(kKey, "expected null or \"vision\": only causal attention is supported; use another model");
}

/// enable_moe_block: experts beside the dense network in all layers. Without it, their keys have no effect.
Row experts_if_enabled() {
  constexpr const char *kEnabled = "enable_moe_block", *kExperts = "num_experts", *kTop = "top_k_experts";
  constexpr const char* kWidth = "moe_intermediate_size";
  const auto read = [=](JsonReader& r, HfConfig& c) {
    if (!r.boolean({kEnabled}, false)) return r.ignore({kExperts, kTop, kWidth});
    const auto top = r.optional_size({kTop}), width = r.optional_size({kWidth});
    if (!r.optional_size({kExperts}) || !top || !width)
      return r.refuse(kEnabled, "expected the sizes ", kExperts, ", ", kTop, " and ", kWidth, "; give these keys");
    experts({kExperts}, 1).read(r, c);
    model::MoeConfig& moe = c.model.moe;
    moe.top_k = *top;
    moe.d_ff = *width;
    moe.router_norm = moe.expert_scale = moe.beside_ffn = true;
    moe.balance = model::Balance::kNone;
  };
  const auto write = [=](Json& j, const HfConfig& c) {
    const model::MoeConfig& moe = c.model.moe;
    const bool enabled = moe.experts > 0;
    j[kEnabled] = enabled;
    j[kExperts] = enabled ? Json(moe.experts) : Json(nullptr);
    j[kTop] = enabled ? Json(moe.top_k) : Json(nullptr);
    j[kWidth] = enabled ? Json(moe.d_ff) : Json(nullptr);
  };
  return {.read = read, .write = write};
}

}  // namespace

Family gemma4() {
  return {
      .class_name = "Gemma4ForCausalLM",
      .model_type = "gemma4_text",
      .base = {.norm = rms_norm(model::NormPlacement::kSandwich),
               .block = {.out_scalar = true},
               .attn = {.v_norm = true, .scale = 1.0},
               .qk_norm = {.kind = model::QkNorm::kHead}},
      .rows = joined(llama_rows({262144, 131072, 2304, 30, 8, 9216}, gemma_hidden_activation(), "rms_norm_eps", 1e-6),
                     {embedding_scale(),
                      kv_heads(4),
                      size({"head_dim"}, {FIELD(head_dim)}, 256),
                      attention_bias(),
                      {.read = refuse_bidirectional},
                      qk_norm_eps(),
                      windows_but_the_last(),
                      flag("attention_k_eq_v", {FIELD(attn.k_eq_v)}, false),
                      {.read = read_full_heads, .write = write_full_heads},
                      optional_number("final_logit_softcapping", FIELD(softcap), std::nullopt),
                      rope_by_kind({.base = 1e6, .local_base = 1e4, .proportional = 0.25}),
                      none_of("hidden_size_per_layer_input", 256,
                              "expected 0: per-layer inputs are not supported; use another model"),
                      none_of("num_kv_shared_layers", 0,
                              "expected 0: layers that share keys and values are not supported; use another model"),
                      experts_if_enabled(),
                      // The class reads these settings only in models with shared KV heads or per-layer inputs.
                      ignored({"use_double_wide_mlp", "vocab_size_per_layer_input"})}),
      .tied_by_default = true,
      .tensors = {.norm2 = "pre_feedforward_layernorm",
                  .router = "router.proj",
                  .expert_forms = {{.experts = "experts.", .fused = true}}}};
}

}  // namespace ashlar::hf
