#include "data/tokenizer/canonical.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/io/json.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

/// True if a field of `model` that has this value has the same effect as an absent field.
bool says_nothing(const json& value) {
  return value.is_null() || value == json(false) || value == json("") || value == json(0);
}

/// Returns `value` without nulls and without fields that affect only offsets, at every depth.
json cleaned(const json& value) {
  if (value.is_array()) {
    json list = json::array();
    for (const json& one : value) list.push_back(cleaned(one));
    return list;
  }
  if (!value.is_object()) return value;
  json object = json::object();
  for (const auto& [key, inner] : value.items()) {
    if (!inner.is_null() && key != "trim_offsets") object[key] = cleaned(inner);
  }
  return object;
}

/// Returns a decoder in canonical form. The fields of ByteLevel are removed, since they do not affect decoding.
json decoder_of(const json& value) {
  json made = cleaned(value);
  if (!made.is_object()) return made;
  if (made.value("type", json()) == "ByteLevel") return {{"type", "ByteLevel"}};
  if (const auto steps = made.find("decoders"); steps != made.end() && steps->is_array()) {
    for (json& step : *steps) step = decoder_of(step);
  }
  return made;
}

json model_of(const json& value) {
  json made = json::object();
  for (const auto& [key, inner] : value.items()) {
    if (!says_nothing(inner) || key == "unk_id") made[key] = inner;
  }
  if (!made.contains("type")) made["type"] = made.contains("vocab") && made["vocab"].is_array() ? "Unigram" : "BPE";
  if (const auto merges = made.find("merges"); merges != made.end() && merges->is_array()) {
    for (json& merge : *merges) {
      if (!merge.is_string()) continue;
      const std::string text = merge.get<std::string>();
      const size_t space = text.find(' ');
      if (space != std::string::npos) merge = json::array({text.substr(0, space), text.substr(space + 1)});
    }
  }
  return made;
}

json added_of(const json& list) {
  json made = json::array();
  for (const json& token : list) {
    if (!token.is_object()) continue;
    const bool special = token.value("special", json()) == json(true);
    json one = {{"id", token.value("id", json())},
                {"content", token.value("content", json())},
                {"special", special},
                {"normalized", token.value("normalized", json(!special))}};
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) one[flag] = token.value(flag, json(false));
    made.push_back(std::move(one));
  }
  std::sort(made.begin(), made.end(), [](const json& a, const json& b) {
    return a["id"] != b["id"] ? a["id"] < b["id"] : a["content"] < b["content"];
  });
  return made;
}

}  // namespace

std::string canonical_tokenizer(std::string_view tokenizer_json) {
  const json whole = io::parse_json(tokenizer_json);
  json made = json::object();
  if (!whole.is_object()) return made.dump();
  made["added_tokens"] = added_of(whole.value("added_tokens", json::array()));
  for (const char* part : {"normalizer", "pre_tokenizer"}) {
    if (const auto at = whole.find(part); at != whole.end() && !at->is_null()) made[part] = cleaned(*at);
  }
  if (const auto at = whole.find("decoder"); at != whole.end() && !at->is_null()) made["decoder"] = decoder_of(*at);
  if (const auto at = whole.find("model"); at != whole.end() && at->is_object()) made["model"] = model_of(*at);
  return made.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ashlar::data
