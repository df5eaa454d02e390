// Classes whose layers are of two kinds, with a window and with full attention: what config.json says of each.
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "launch/hf/class_rows.h"
#include "parallel/model/rope_frequencies.h"

// Source: the configuration and modeling files of transformers 5.23.
namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormPlacement;
using model::QkNorm;

constexpr model::NormConfig rms_norm(NormPlacement placement, bool unit_offset = false) {
  return {.variant = {.type = NormType::kRmsNorm, .unit_offset = unit_offset}, .placement = placement};
}

Row attention_bias() { return flag("attention_bias", {AXIS(bias.qkv), AXIS(bias.attn_out)}, false); }

/// Scores are divided by the root of this whole number, whatever head_dim is.
Row query_pre_attn_scalar() {
  constexpr const char* kKey = "query_pre_attn_scalar";
  return {.read = [=](JsonReader& r,
                      HfConfig& c) { c.model.attn.scale = 1.0 / std::sqrt(static_cast<double>(r.size({kKey}, 256))); },
          .write =
              [=](Json& j, const HfConfig& c) {
                const double scale = c.model.attn.scale;
                j[kKey] = std::max<int64_t>(std::llround(1.0 / (scale * scale)), 1);
              }};
}

/// A cap, or null for none.
template <std::optional<double>& (*kAxis)(ModelConfig&)>
Row softcap(const char* key, std::optional<double> absent) {
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                if (!r.has(key) && absent) r.add_note(str_cat(key, " is absent: ", *absent, ", the class's default"));
                kAxis(c.model) = r.has(key) ? r.optional_number({key}) : absent;
              },
          .write =
              [=](Json& j, const HfConfig& c) {
                ModelConfig m = c.model;
                const std::optional<double> cap = kAxis(m);
                j[key] = cap ? Json(*cap) : Json(nullptr);
              }};
}
std::optional<double>& scores_cap(ModelConfig& m) { return m.attn.softcap; }
std::optional<double>& logits_cap(ModelConfig& m) { return m.softcap; }

/// The class reads hidden_activation alone; the published files have both.
Row hidden_activation() {
  const Row named = activation("hidden_activation", "gelu_pytorch_tanh");
  return {.read =
              [=](JsonReader& r, HfConfig& c) {
                named.read(r, c);
                if (!r.has_value("hidden_act")) return;
                HfConfig other = c;
                activation("hidden_act", "").read(r, other);
                if (other.model.ffn.act != c.model.ffn.act)
                  r.add_note(str_cat(r.shown("hidden_act"), " has no effect in ", class_name(c.family)));
              },
          .write = named.write};
}

/// What the Gemmas from the second on share.
Rows gemma_rows(const Sizes& s, int64_t kv) {
  return joined(usual_rows(s, hidden_activation(), "rms_norm_eps", 1e-6),
                {embedding_times_root_of_width(), heads_divide_width(), kv_heads(kv),
                 size({"head_dim"}, {AXIS(head_dim)}, 256), attention_bias(), causal_attention_alone()});
}

Rows gemma2_rows() {
  return joined(gemma_rows({256000, 8192, 2304, 26, 8, 9216}, 4),
                {query_pre_attn_scalar(), softcap<scores_cap>("attn_logit_softcapping", 50.0),
                 softcap<logits_cap>("final_logit_softcapping", 30.0), windows({.absent = 4096, .full_every = 2}),
                 rope({.whole_heads = true})});
}

/// Layers with full attention do not rotate, in these classes always.
Row full_layers_do_not_rotate() {
  return {.read = [](JsonReader&, HfConfig& c) { c.model.rope.global_enabled = false; }};
}

}  // namespace

ClassTable gemma2() { return {.base = {.norm = rms_norm(NormPlacement::kSandwich, true)}, .rows = gemma2_rows()}; }

ClassTable vaultgemma() { return {.base = {.norm = rms_norm(NormPlacement::kPre, true)}, .rows = gemma2_rows()}; }

ClassTable gemma3() {
  const Row no_scores_cap = {.read = [](JsonReader& r, HfConfig&) {
    if (r.optional_number({"attn_logit_softcapping"}))
      r.refuse("attn_logit_softcapping", "Gemma3ForCausalLM does not cap scores; expected null");
  }};
  const WindowKeys keys = {.absent = 4096, .full_every = 6, .every_key = "sliding_window_pattern"};
  // The same pattern under the name that the class keeps it by.
  const Row pattern = {.read = [](JsonReader& r, HfConfig&) {
    const auto own = r.optional_size({"_sliding_window_pattern"}), plain = r.optional_size({"sliding_window_pattern"});
    if (own && plain && own != plain) r.refuse("_sliding_window_pattern", "sliding_window_pattern says otherwise");
  }};
  return {.base = {.norm = rms_norm(NormPlacement::kSandwich, true), .qk_norm = {.kind = QkNorm::kHead}},
          .rows = joined(gemma_rows({262208, 131072, 2304, 26, 8, 9216}, 4),
                         {qk_norm_eps(), query_pre_attn_scalar(), no_scores_cap,
                          softcap<logits_cap>("final_logit_softcapping", std::nullopt), windows(keys), pattern,
                          rope_by_kind({.base = 1e6, .local_base = 1e4, .local_key = "rope_local_base_freq"})})};
}

namespace {

/// What per_layer_config says of layers with full attention, which must all have the same.
struct FullHeads {
  std::optional<int64_t> head_dim, kv_heads;
  bool operator==(const FullHeads&) const = default;
};

/// Entries by the number of their layer; files write layer 5 as "5" or, since transformers 5.24, as "05".
std::map<int64_t, const nlohmann::json*> numbered(const nlohmann::json& by_layer) {
  std::map<int64_t, const nlohmann::json*> entries;
  for (const auto& [key, value] : by_layer.items()) {
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    if (error == std::errc() && end == key.data() + key.size()) entries.emplace(layer, &value);
  }
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
        r.refuse(kKey, "expected an object for layer ", layer);
        continue;
      }
      JsonReader of = r.nested(*entry->second, str_cat(kKey, ".", layer, "."));
      heads = {of.optional_size({"head_dim"}), of.optional_size({"num_key_value_heads"})};
      for (const std::string& key : of.unread_keys()) of.refuse(key.c_str(), "only heads may differ by layer");
    }
    if (windows[static_cast<size_t>(layer)] > 0) {
      if (heads != FullHeads{})
        r.refuse(kKey, "layer ", layer, " has a window; only layers with full attention differ");
      continue;
    }
    if (found && *found != heads) r.refuse(kKey, "layers with full attention differ; expected one kind of them");
    found = heads;
  }
  if (read != by_layer->size()) r.refuse(kKey, "expected numbers of layers, 0 to ", m.n_layers - 1);
  return found.value_or(FullHeads{});
}

/// Heads of layers with full attention: per_layer_config of new files, global_* of older ones.
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
    if (old.head_dim && *old.head_dim != width) r.refuse(kWidth, "per_layer_config says ", width, "; keep one");
    if (old.kv_heads && *old.kv_heads != kv_heads) r.refuse(kHeads, "per_layer_config says ", kv_heads, "; keep one");
  } else {
    heads = old;
    if (!r.has(kWidth)) {
      heads.head_dim = 512;
      r.add_note(str_cat(kWidth, " is absent: 512, the default of the class"));
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

/// Windows by layer, but for the last layer, which the class makes full whatever the file says.
Row gemma4_windows() {
  const Row kinds = windows({.absent = 512, .full_every = 6});
  const auto read = [=](JsonReader& r, HfConfig& c) {
    kinds.read(r, c);
    std::vector<int64_t> layers = model::layer_windows(c.model);
    if (layers.back() < 0) return;
    layers.back() = -1;
    c.model.attn.window_cycle = model::shortest_cycle(layers);
    r.add_note(str_cat("layer ", layers.size() - 1, ", the last, has full attention, as the class makes it"));
  };
  return {.read = read, .write = kinds.write, .limit = kinds.limit};
}

/// A number of things that no axis covers; 0 is written.
Row none_of(const char* key, double absent, const char* why) {
  return {.read =
              [=](JsonReader& r, HfConfig&) {
                if (r.number({key}, absent) != 0) r.refuse(key, why);
              },
          .write = [=](Json& j, const HfConfig&) { j[key] = 0; }};
}

}  // namespace

ClassTable gemma4() {
  const Row causal = {.read = [](JsonReader& r, HfConfig&) {
    constexpr const char* kKey = "use_bidirectional_attention";
    const nlohmann::json* value = r.raw(kKey);  // "vision": among the tokens of an image, which a text has not
    if (value != nullptr && *value != "vision" && *value != false)
      r.refuse(kKey, "attention is causal always; expected null or \"vision\"");
  }};
  return {
      .base = {.norm = rms_norm(NormPlacement::kSandwich),
               .block = {.out_scalar = true},
               .attn = {.v_norm = true, .scale = 1.0},
               .qk_norm = {.kind = QkNorm::kHead}},
      .rows = joined(usual_rows({262144, 131072, 2304, 30, 8, 9216}, hidden_activation(), "rms_norm_eps", 1e-6),
                     {embedding_times_root_of_width(),
                      kv_heads(4),
                      size({"head_dim"}, {AXIS(head_dim)}, 256),
                      attention_bias(),
                      causal,
                      qk_norm_eps(),
                      gemma4_windows(),
                      flag("attention_k_eq_v", {AXIS(attn.k_eq_v)}, false),
                      {.read = read_full_heads, .write = write_full_heads},
                      softcap<logits_cap>("final_logit_softcapping", std::nullopt),
                      rope_by_kind({.base = 1e6, .local_base = 1e4, .proportional = 0.25}),
                      none_of("hidden_size_per_layer_input", 256, "inputs of each layer are not an axis; expected 0"),
                      none_of("num_kv_shared_layers", 0, "every layer has keys of its own; expected 0"),
                      always_false("enable_moe_block", "Gemma4ForCausalLM is read without experts; expected false"),
                      // Of layers that share keys, of layers' own inputs, and of experts.
                      ignored({"use_double_wide_mlp", "vocab_size_per_layer_input", "num_experts", "top_k_experts",
                               "moe_intermediate_size"})})};
}

ClassTable cohere2() {
  return {.base = {.norm = {.variant = {.type = NormType::kLayerNorm}, .affine = model::NormAffine::kScale},
                   .block = kParallel,
                   .rope = kInterleaved},
          .rows = joined(usual_rows({256000, 8192, 8192, 40, 64, 22528}, "silu", "layer_norm_eps", 1e-5),
                         {kv_heads(), head_dim(HeadDim::kDerived), attention_bias(),
                          number("logit_scale", {AXIS(logit_scale)}, 0.0625),
                          windows({.absent = 4096, .full_every = 4, .every_key = "sliding_window_pattern"}),
                          rope({.whole_heads = true}), full_layers_do_not_rotate(),
                          // Of the published files: what the class has without a choice.
                          ignored({"layer_switch", "order_of_interleaved_layers", "position_embedding_type",
                                   "rotary_pct", "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
                                   "use_parallel_embedding"})})};
}

ClassTable olmo3() {
  return {.base = {.norm = rms_norm(NormPlacement::kOutput), .qk_norm = {.kind = QkNorm::kFull}},
          .rows = joined(
              usual_rows({50304, 2048, 4096, 32, 32, 11008}, "silu", "rms_norm_eps", 1e-5),
              {kv_heads(), head_dim(HeadDim::kWrittenIfNeeded), attention_bias(), qk_norm_eps(),
               windows({.absent = 4096, .full_every = 4}), rope_by_kind({.base = 500000.0, .local_base = 500000.0})})};
}

ClassTable exaone4() {
  // With a window the full layers do not rotate; without one all layers do.
  constexpr const char* kKey = "sliding_window";
  const Row kinds = windows({.absent = 4096, .full_every = 4, .every_key = "sliding_window_pattern"});
  const Row windows_and_rotation = {.read =
                                        [=](JsonReader& r, HfConfig& c) {
                                          kinds.read(r, c);
                                          c.model.rope.global_enabled = r.has(kKey) && !r.has_value(kKey);
                                        },
                                    .write =
                                        [=](Json& j, const HfConfig& c) {
                                          kinds.write(j, c);
                                          bool full_turn = true;
                                          const std::vector<int64_t> layers = model::layer_windows(c.model);
                                          for (int64_t i = 0; i < std::ssize(layers); ++i)
                                            full_turn =
                                                full_turn && (layers[i] > 0 || model::rope_of(c.model, i).base > 0);
                                          if (!full_turn && j[kKey].is_null())
                                            j[kKey] = 4096;  // a window that no layer has
                                        },
                                    .limit = kinds.limit};
  return {.base = {.norm = rms_norm(NormPlacement::kOutput), .qk_norm = {.kind = QkNorm::kHead}},
          .rows = joined(usual_rows({102400, 2048, 4096, 32, 32, 16384}, "silu", "rms_norm_eps", 1e-5),
                         {kv_heads(32), head_dim(HeadDim::kWrittenIfNeeded), qk_norm_eps(), rope({.whole_heads = true}),
                          windows_and_rotation})};
}

ClassTable granite_swa() {
  // Bases by layer, 0 where one does not rotate; null: rope_theta everywhere.
  constexpr const char* kKey = "layer_rope_theta";
  const Row bases = {.read =
                         [=](JsonReader& r, HfConfig& c) {
                           const nlohmann::json* list = r.raw(kKey);
                           if (list == nullptr) return;
                           std::vector<double> by_layer;
                           bool good = list->is_array() && std::ssize(*list) == c.model.n_layers;
                           for (size_t i = 0; good && i < list->size(); ++i) {
                             good = (*list)[i].is_number() && (*list)[i].get<double>() >= 0;
                             if (good) by_layer.push_back((*list)[i].get<double>());
                           }
                           if (!good) return r.refuse(kKey, "expected a list of numbers from 0, one a layer");
                           c.model.rope.base_cycle = by_layer;
                           c.model.rope = model::with_canonical_rope(c.model).rope;
                         },
                     .write =
                         [=](Json& j, const HfConfig& c) {
                           Json list = Json::array();
                           for (int64_t i = 0; i < c.model.n_layers; ++i)
                             list.push_back(model::rope_of(c.model, i).base);
                           j[kKey] = std::move(list);
                         }};
  return {.base = {.norm = kRmsNorm, .attn = {.sinks = true}},
          .rows = joined(usual_rows({100352, 8192, 2560, 24, 20, 8192}, "silu", "rms_norm_eps", 1e-5),
                         joined({kv_heads(4), head_dim(HeadDim::kWrittenIfNeeded), attention_bias()},
                                joined(granite_factors(),
                                       {windows({.absent = 128, .full_every = 4, .first_is_full = true}), bases})))};
}

ClassTable cwm() {
  // The class has a scaling of its own for a file that says nothing of one.
  const Row usual_scaling = {.read = [](JsonReader& r, HfConfig& c) {
    if (r.has_value("rope_scaling") || r.has_value("rope_parameters")) return;
    c.model.rope.scaling = model::RopeScaling::kLlama3;
    c.model.rope.factor = 16;
    c.model.rope.low_freq_factor = 1;
    c.model.rope.high_freq_factor = 4;
    c.model.rope.original_positions = 8192;
    r.add_note("rope_scaling is absent: llama3 with a factor of 16, the class's default");
  }};
  return {.base = {.norm = kRmsNorm},
          .rows = joined(usual_rows({128256, 131072, 6144, 64, 48, 21504}, "silu", "rms_norm_eps", 1e-5),
                         {heads_divide_width(), kv_heads(8), head_dim(HeadDim::kWritten, 128),
                          always_false("attention_bias", "the class has no biases in attention; expected false"),
                          flag("mlp_bias", {AXIS(bias.ffn)}, false),
                          windows({.absent = 8192, .full_every = 4, .first_is_full = true}), usual_scaling,
                          rope({.base = 1e6, .whole_heads = true})})};
}

}  // namespace ashlar::hf
