#include "launch/hf/hf_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_join.h"
#include "core/base/error.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "launch/config/run_config.h"
#include "launch/hf/common_keys.h"
#include "launch/hf/neutral_keys.h"
#include "parallel/model/model_constraints.h"
#include "parallel/model/rope_frequencies.h"

namespace ashlar::hf {
namespace {

using model::ModelConfig;
using model::NormAffine;

/// Sets c.model from the keys of config.json, with the rows of c.family.
void read_model(JsonReader& reader, HfConfig& c) {
  c.model = c.family->base;
  for (const Row& row : c.family->rows)
    if (row.read) row.read(reader, c);
  // A scale of 0 means that no row has set one: the default is 1 / sqrt(head_dim).
  if (c.model.attn.scale == 0) c.model.attn.scale = 1.0 / std::sqrt(static_cast<double>(c.model.head_dim));
}

Json write_model(const HfConfig& c) {
  Json j;
  j["architectures"] = {c.family->class_name};
  j["model_type"] = c.family->model_type;
  for (const Row& row : c.family->rows)
    if (row.write) row.write(j, c);
  return j;
}

/// Result of writing a model with the rows of a family and reading the written keys back.
struct ReadBack {
  ModelConfig model;
  std::vector<std::string> errors;
};

ReadBack read_back(const Family& family, const ModelConfig& config) {
  HfConfig asked = {.family = &family, .model = config}, got = {.family = &family};
  asked.extras.max_positions = 1;  // any valid value: the model does not depend on it
  const nlohmann::json root = io::parse_json(write_model(asked).dump());
  ReadBack back;
  JsonReader reader(root, "", back.errors, got.notes);
  read_model(reader, got);
  back.model = got.model;
  return back;
}

/// True for settings that no config.json has: padding of the vocabulary, init, terms of the loss.
bool is_ours_alone(std::string_view key) {
  return key == "vocab.pad_to" || key.starts_with("init.") || key.starts_with("loss.") ||
         key.starts_with("moe.balance") || key == "moe.bias_rate" || key == "moe.z_coef";
}

/// Returns the family that has this class or model type, its own or that of Family::whole; null if none has.
const Family* find_family(std::string_view class_or_type, const Family* (*own)(std::string_view),
                          std::string_view WholeClass::*of_whole) {
  if (const Family* family = own(class_or_type)) return family;
  for (const Family& family : families())
    if (!class_or_type.empty() && family.whole.*of_whole == class_or_type) return &family;
  return nullptr;
}

/// True if the file is of Family::whole.
bool is_of_whole(const nlohmann::json& root, const Family& family) {
  const WholeClass& whole = family.whole;
  if (whole.class_name.empty()) return false;
  const auto is = [&](const char* key, const nlohmann::json& value) {
    return root.contains(key) && root[key] == value;
  };
  return is("architectures", {std::string(whole.class_name)}) || is("model_type", std::string(whole.model_type));
}

/// Returns the keys of the text model in a file of Family::whole. Keys beside text_config that concern it are added;
/// other keys that could change the result are errors.
nlohmann::json text_part(const nlohmann::json& root, HfConfig& c, std::vector<std::string>& errors,
                         const std::vector<std::string>& ignored_keys) {
  const WholeClass& whole = c.family->whole;
  JsonReader reader(root, "", errors, c.notes);
  const nlohmann::json* text = reader.object("text_config");
  if (text == nullptr) {
    errors.push_back(str_cat("text_config: expected the settings of the text model of ", whole.class_name,
                             "; download config.json again"));
    return {{"architectures", {std::string(c.family->class_name)}}};
  }
  nlohmann::json part = *text;
  part["architectures"] = {std::string(c.family->class_name)};
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "quantization_config"})
    if (const nlohmann::json* value = reader.raw(key); value != nullptr && !part.contains(key)) part[key] = *value;
  reader.ignore(whole.other_keys);
  accept_neutral_keys(reader);
  for (const std::string& key : reader.unread_keys())
    if (std::ranges::find(ignored_keys, key) == ignored_keys.end())
      reader.refuse(key.c_str(), whole.class_name,
                    " is not known to read this key: expected no such key; if it has no "
                    "effect on the text model, add --ignore-key ",
                    escaped(key));
  c.notes.push_back(str_cat("only the text model of ", whole.class_name, " is imported, as ", c.family->class_name,
                            "; its image encoder is left out"));
  return part;
}

const Family* family_of(const nlohmann::json& root, const std::string& name) {
  const auto unknown = [&](const std::string& got) {
    return input_error("hf", printable(name), ": ", got, " is not supported; expected a model of one of the classes ",
                       comma_list(families(), &Family::class_name));
  };
  const Family *by_class = nullptr, *by_type = nullptr;
  if (root.contains("architectures") && !root["architectures"].is_null()) {
    const nlohmann::json& list = root["architectures"];
    if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
      throw unknown("architectures = " + printable(list.dump(-1, ' ', true)));
    }
    by_class = find_family(list[0].get<std::string>(), family_from_class, &WholeClass::class_name);
    if (by_class == nullptr) throw unknown("architectures = " + printable(list[0].get<std::string>()));
  }
  if (root.contains("model_type") && !root["model_type"].is_null()) {
    const std::string type = root["model_type"].is_string() ? root["model_type"].get<std::string>() : "";
    by_type = find_family(type, family_from_model_type, &WholeClass::model_type);
    if (by_type == nullptr) throw unknown("model_type = " + printable(root["model_type"].dump(-1, ' ', true)));
  }
  if (by_class == nullptr && by_type == nullptr) throw unknown("a config with neither architectures nor model_type");
  if (by_class != nullptr && by_type != nullptr && by_class != by_type) {
    throw input_error("hf", printable(name), ": architectures is ", by_class->class_name,
                      ", but model_type belongs to ", by_type->class_name,
                      ": expected the same class; remove the wrong key");
  }
  return by_class != nullptr ? by_class : by_type;
}

Json id_or_null(const std::optional<int64_t>& id) { return id ? Json(*id) : Json(nullptr); }

}  // namespace

HfConfig parse_hf_config(const std::string& json, const std::string& name,
                         const std::vector<std::string>& ignored_keys) {
  HfConfig config;
  std::vector<std::string> errors;
  const auto no_config = [&](const std::string& sentence) {
    return input_error("hf", printable(name), ": ", sentence, "; expected the config.json of a Hugging Face model");
  };
  io::reading_json(no_config, [&] {
    const nlohmann::json file = io::parse_json(json);
    if (!file.is_object()) throw no_config("it is not a JSON object");
    config.family = family_of(file, name);
    config.is_part = is_of_whole(file, *config.family);
    const nlohmann::json root = config.is_part ? text_part(file, config, errors, ignored_keys) : file;
    if (config.is_part) family_of(root, name);  // throws if text_config is of another class
    JsonReader reader(root, "", errors, config.notes);
    read_model(reader, config);
    read_common_keys(reader, config);
    accept_neutral_keys(reader);
    for (const std::string& key : ignored_keys) {
      if (!root.contains(key) && !file.contains(key))
        errors.push_back(str_cat("--ignore-key ", printable(key), ": no such key in config.json; remove this option"));
    }
    for (const std::string& key : reader.unread_keys()) {
      if (std::ranges::find(ignored_keys, key) != ignored_keys.end()) continue;
      const std::string_view neutral = neutral_value(key);
      reader.refuse(key.c_str(), config.family->class_name, " is not known to read this key: expected no such key",
                    neutral.empty() ? "" : str_cat(", or the value ", neutral, ", which has no effect"),
                    "; if it has no effect in this model, add --ignore-key ", escaped(key));
    }
  });
  if (errors.empty()) errors = model::constraint_errors(config.model);
  if (!errors.empty()) throw input_error("hf", printable(name), ": ", absl::StrJoin(errors, "; "));
  return config;
}

std::vector<int64_t> parse_generation_eos(const std::string& json, const std::string& name) {
  std::vector<std::string> errors, notes;
  std::vector<int64_t> ids;
  const auto no_config = [&](const std::string& sentence) {
    return input_error("hf", printable(name), ": ", sentence,
                       "; expected the generation_config.json of a Hugging Face model; correct the file, or remove it");
  };
  io::reading_json(no_config, [&] {
    const nlohmann::json root = io::parse_json(json);
    if (!root.is_object()) throw no_config("it is not a JSON object");
    JsonReader reader(root, "", errors, notes);
    ids = token_ids(reader, "eos_token_id");
  });
  if (!errors.empty()) throw no_config(absl::StrJoin(errors, "; "));
  return ids;
}

namespace {

/// Returns the model with attn.global_head_dim, attn.global_n_kv_heads and rope.global_dims set only if the layers with
/// full attention differ in them from the layers with a window.
ModelConfig with_canonical_heads(ModelConfig m) {
  const std::vector<int64_t> windows = model::layer_windows(m);
  const auto full = [](int64_t window) { return window < 0; };
  const bool none = std::ranges::none_of(windows, full);
  const bool all = std::ranges::all_of(windows, full);
  const int64_t width = m.attn.global_head_dim.value_or(m.head_dim);
  const int64_t kv_heads = m.attn.global_n_kv_heads.value_or(m.n_kv_heads), dims = model::global_rope_dims(m);
  if (all) {
    m.head_dim = width;
    m.n_kv_heads = kv_heads;
    m.rope.dims = dims;
  }
  if (none) m.attn.k_eq_v = false;
  if (none || width == m.head_dim) m.attn.global_head_dim.reset();
  if (none || kv_heads == m.n_kv_heads) m.attn.global_n_kv_heads.reset();
  m.rope.global_dims.reset();
  if (!none && model::global_rope_dims(m) != dims) m.rope.global_dims = dims;
  return m;
}

/// Returns the model with one way to say which layers have experts, and the defaults of settings without effect.
ModelConfig with_canonical_experts(ModelConfig m) {
  model::MoeConfig& moe = m.moe;
  const model::MoeConfig defaults;
  if (moe.experts == 0) {
    moe = defaults;
    return m;
  }
  std::vector<int64_t> dense;
  for (int64_t layer = 0; layer < m.n_layers; ++layer)
    if (!m.has_experts(layer)) dense.push_back(layer);
  moe.first_layer = defaults.first_layer;
  moe.every = defaults.every;
  moe.dense_layers = dense;
  if (dense.empty()) m.d_ff = moe.d_ff;
  if (moe.shared_d_ff == 0) moe.shared_gate = false;
  if (!moe.rule.renormalize) moe.rule.sum_floor = moe.rule.sum_eps = 0;
  if (moe.rule.groups == moe.rule.top_groups) moe.rule.groups = moe.rule.top_groups = 1;
  if (moe.rule.groups == 1) {
    moe.rule.top_groups = defaults.rule.top_groups;
    moe.rule.group_score = defaults.rule.group_score;
  }
  return m;
}

/// Returns the model without settings of rotating and other layers that apply to no layer, or to all.
ModelConfig with_canonical_rotation_kinds(ModelConfig m) {
  bool rotated = false, unrotated = false;
  for (int64_t layer = 0; layer < m.n_layers; ++layer)
    (model::is_of_kind(m, layer, model::RotationKind::kRotated) ? rotated : unrotated) = true;
  const auto narrowed = [&](model::RotationKind& kind) {
    const bool none = kind == model::RotationKind::kRotated ? !rotated : !unrotated;
    const bool some = kind != model::RotationKind::kAll;
    if (some && (!rotated || !unrotated)) kind = model::RotationKind::kAll;
    return some && none;
  };
  if (m.qk_norm.kind == model::QkNorm::kNone || narrowed(m.qk_norm.layers)) m.qk_norm = {};
  model::AttentionConfig& attn = m.attn;
  if (narrowed(attn.temperature_layers) || attn.temperature_beta == 0 || attn.temperature_positions == 0) {
    attn.temperature_beta = 0;
    attn.temperature_positions = attn.temperature_offset = 0;
    attn.temperature_layers = model::RotationKind::kAll;
  }
  return m;
}

}  // namespace

ModelConfig with_shortest_cycle(ModelConfig m) {
  m = with_canonical_heads(std::move(m));
  m = with_canonical_experts(std::move(m));
  m = with_canonical_rotation_kinds(std::move(m));
  m = model::with_canonical_rope(std::move(m));
  m.attn.window_cycle = model::shortest_cycle(model::layer_windows(m));
  m.attn.last_layer_full = false;
  if (m.attn.window_cycle == std::vector<int64_t>{-1}) m.attn.window_kind = model::WindowKind::kSliding;
  return m;
}

std::vector<std::string> obstacles(const Family& family, const ModelConfig& config) {
  const ReadBack back = read_back(family, config);
  std::vector<std::string> found;
  for (const config::ModelDifference& d :
       config::compare_models(with_shortest_cycle(config), with_shortest_cycle(back.model))) {
    if (!is_ours_alone(d.key))
      found.push_back(str_cat(d.key, " = ", d.left, ": ", family.class_name, " requires ", d.right));
  }
  for (const Row& row : family.rows) {
    if (std::string text = row.limit ? row.limit(config) : ""; !text.empty()) found.push_back(std::move(text));
  }
  // Errors of reading the model back follow from settings that differ, so they are returned only if no setting differs.
  return found.empty() ? back.errors : found;
}

ModelConfig completed(const Family& family, const ModelConfig& config) {
  const ModelConfig has = read_back(family, config).model;
  ModelConfig m = config;
  if (m.norm.variant.type == has.norm.variant.type) m.norm.affine = std::max(m.norm.affine, has.norm.affine);
  m.bias = {.qkv = m.bias.qkv || has.bias.qkv,
            .attn_out = m.bias.attn_out || has.bias.attn_out,
            .ffn = m.bias.ffn || has.bias.ffn,
            .lm_head = m.bias.lm_head || has.bias.lm_head};
  m.moe.router_bias = m.moe.router_bias || (m.moe.experts > 0 && has.moe.router_bias);
  if (model::qk_norm_has_gain(m) && m.qk_norm.kind == has.qk_norm.kind)
    m.qk_norm.bias = m.qk_norm.bias || has.qk_norm.bias;
  return m;
}

bool is_completion(const ModelConfig& config, std::string_view name) {
  const bool norm = name.find("norm") != std::string_view::npos;
  if (norm && name.find(".attn.") != std::string_view::npos)  // norms of queries and keys get biases only, never gains
    return name.ends_with(".bias") && !config.qk_norm.bias;
  if (norm && name.ends_with(".weight")) return config.norm.affine == NormAffine::kNone;
  if (!name.ends_with(".bias")) return false;
  if (norm) return config.norm.affine != NormAffine::kScaleBias;
  if (name.find(".attn.out.") != std::string_view::npos) return !config.bias.attn_out;
  if (name.find(".attn.") != std::string_view::npos) return !config.bias.qkv;
  if (name.ends_with(".moe.router.bias")) return !config.moe.router_bias;
  if (name.find(".ffn.") != std::string_view::npos || name.find(".moe.") != std::string_view::npos)
    return !config.bias.ffn;
  return !config.bias.lm_head;
}

const Family& choose_family(const ModelConfig& config, const Family* wanted) {
  const auto in_the_way = [&](const Family& family) { return obstacles(family, completed(family, config)); };
  const Family* nearest = wanted != nullptr ? wanted : &families().front();
  std::vector<std::string> fewest = in_the_way(*nearest);
  if (wanted == nullptr) {
    for (const Family& family : families()) {
      if (obstacles(family, config).empty()) return family;
      std::vector<std::string> found = in_the_way(family);
      if (found.size() >= fewest.size()) continue;
      nearest = &family;
      fewest = std::move(found);
    }
  }
  if (fewest.empty()) return *nearest;
  throw input_error(
      "hf",
      wanted ? "this model cannot be exported as "
             : "this model has settings that no supported class has, and cannot be exported; the nearest class is ",
      nearest->class_name, ": ", absl::StrJoin(fewest, "; "));
}

std::string write_hf_config(const HfConfig& config, std::string_view dtype) {
  if (const auto found = obstacles(*config.family, config.model); !found.empty()) throw Bug(absl::StrJoin(found, "; "));
  if (config.model.pos.type != model::PosType::kLearned && config.extras.max_positions < 1) {
    throw input_error("hf", "expected the longest context in tokens, got ", config.extras.max_positions,
                      "; the checkpoint does not record it: give --max-positions N");
  }
  Json j = write_model(config);
  // All three token ids are written, as null if unknown: for an absent key transformers takes the default of the class,
  // which may be outside the vocabulary.
  j["bos_token_id"] = id_or_null(config.extras.bos_token_id);
  if (config.extras.eos_token_ids.size() > 1) {
    j["eos_token_id"] = config.extras.eos_token_ids;
  } else {
    j["eos_token_id"] = config.extras.eos_token_ids.empty() ? Json(nullptr) : Json(config.extras.eos_token_ids[0]);
  }
  j["pad_token_id"] = id_or_null(config.extras.pad_token_id);
  j["use_cache"] = true;
  j["dtype"] = dtype;        // the key of transformers 5
  j["torch_dtype"] = dtype;  // the key of transformers 4
  return j.dump(2) + "\n";
}

}  // namespace ashlar::hf
