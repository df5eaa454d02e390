// Attention scores are not divided by sqrt(head_dim).
#include <nlohmann/json.hpp>

#include "launch/hf/shared/tables.h"

namespace ashlar::hf {
namespace {

/// Returns the window of each layer, from attention_types, a list of pairs [kinds, repeats]. If the file also has
/// attention_layers, a list with one kind per layer, it must agree with attention_types.
std::vector<int64_t> windows_by_layer(JsonReader& r, int64_t window, int64_t n_layers) {
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
    r.refuse("attention_types", "expected a list of pairs [kinds, repeats], where kinds are \"global\" or \"local\"; ",
             "e.g. [[[\"global\", \"local\"], 12]]");
    return {};
  }
  std::vector<int64_t> found;
  for (const std::string& kind : kinds) {
    if (kind != "global" && kind != "local")
      r.refuse("attention_types", "expected only \"global\" or \"local\"; correct attention_types");
    found.push_back(kind == "local" ? window : -1);
  }
  if (std::ssize(found) != n_layers) {
    r.refuse("attention_types", "expected \"global\" or \"local\" for ", n_layers,
             " layers (num_layers), got kinds for ",
             std::ssize(found) > n_layers ? str_cat("more than ", n_layers) : str_cat(std::ssize(found)),
             "; correct attention_types");
    return {};
  }
  if (const nlohmann::json* layers = r.raw("attention_layers"); layers != nullptr && *layers != nlohmann::json(kinds)) {
    r.refuse("attention_layers",
             "expected the kinds that attention_types gives (if it is absent, global and local alternate); remove "
             "attention_layers, or correct attention_types");
  }
  return found;
}

void read_layers(JsonReader& r, HfConfig& c) {
  const int64_t window = r.size({"window_size"}, 256);
  const auto found = windows_by_layer(r, window, c.model.n_layers);
  if (!found.empty()) c.model.attn.window_cycle = model::shortest_cycle(found);
}

void write_layers(Json& j, const HfConfig& c) {
  Json kinds = Json::array();
  j["window_size"] = 256;
  for (const int64_t window : model::layer_windows(c.model)) {
    kinds.push_back(window > 0 ? "local" : "global");
    if (window > 0) j["window_size"] = window;
  }
  j["attention_types"] = Json::array({Json::array({kinds, 1})});
  j["attention_layers"] = kinds;
}

}  // namespace

Family gpt_neo() {
  return {.class_name = "GPTNeoForCausalLM",
          .model_type = "gpt_neo",
          .base = {.norm = kLayerNorm,
                   .bias = {.attn_out = true, .ffn = true},
                   .ffn = kUngatedGelu,
                   .pos = {.type = model::PosType::kLearned},
                   .attn = {.scale = 1.0}},
          .rows = {size({"vocab_size"}, {FIELD(vocab_size)}, 50257),
                   positions({"max_position_embeddings"}, 2048),
                   size({"hidden_size"}, {FIELD(d_model)}, 2048),
                   size({"num_layers", "num_hidden_layers"}, {FIELD(n_layers)}, 24),
                   size({"num_heads", "num_attention_heads"}, {FIELD(n_heads), FIELD(n_kv_heads)}, 16),
                   size_or({"intermediate_size"}, FIELD(d_ff), four_widths),
                   head_dim(HeadDim::kDerived),
                   {.read = read_layers, .write = write_layers},
                   activation("activation_function", "gelu_new"),
                   number("layer_norm_epsilon", {FIELD(norm.variant.eps)}, 1e-5),
                   number("embed_dropout", {FIELD(dropout.embed)}, 0.0),
                   number("attention_dropout", {FIELD(dropout.attn)}, 0.0),
                   number("resid_dropout", {FIELD(dropout.resid)}, 0.0)},
          .tied_by_default = true,
          .tensors = gpt_tensors({.positions = "wpe",
                                  .q = "attn.attention.q_proj",
                                  .k = "attn.attention.k_proj",
                                  .v = "attn.attention.v_proj",
                                  .attn_out = "attn.attention.out_proj",
                                  .up = "mlp.c_fc",
                                  .down = "mlp.c_proj",
                                  .buffers = {".attn.attention.bias", ".attn.attention.masked_bias"}})};
}

}  // namespace ashlar::hf
