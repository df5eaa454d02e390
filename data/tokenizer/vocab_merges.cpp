#include "data/tokenizer/vocab_merges.h"

#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

json object_in(const TokenizerFiles& files, const std::string& name) {
  const std::string* const text = files.find(name);
  if (text == nullptr) return json::object();
  json value;
  io::reading_json(
      [&](const std::string& sentence) { return input_error("tokenizer", files.shown, ": ", name, ": ", sentence); },
      [&] { value = io::parse_json(*text); });
  if (!value.is_object()) throw input_error("tokenizer", files.shown, ": ", name, ": expected an object");
  return value;
}

OrderedJson added_token(const std::string& content, int64_t id, const json& flags) {
  OrderedJson token = added_token_json(content, id);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    if (const auto at = flags.find(flag); at != flags.end()) token[flag] = *at;
  }
  return token;
}

}  // namespace

std::string tokenizer_json_of_vocab_and_merges(const TokenizerFiles& files) {
  const json vocab = object_in(files, "vocab.json");
  for (const auto& [token, id] : vocab.items()) {
    if (token.ends_with("</w>"))
      throw input_error("tokenizer", files.shown, ": vocab.json: \"", token, "\": end_of_word_suffix is not supported");
  }
  OrderedJson merges = OrderedJson::array();
  const std::string& text = *files.find("merges.txt");
  for (size_t at = 0; at < text.size();) {
    const size_t stop = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, stop - at);
    at = stop + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    merges.push_back(std::move(line));
  }
  const json config = object_in(files, "tokenizer_config.json");
  std::map<std::string, OrderedJson> added;
  const json decoder = config.value("added_tokens_decoder", json::object());
  for (const auto& [id, flags] : decoder.items()) {
    const bool good = !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos &&
                      flags.is_object() && flags.contains("content") && flags["content"].is_string();
    if (!good)
      throw input_error("tokenizer", files.shown, ": tokenizer_config.json: added_tokens_decoder: bad entry ", id);
    const std::string content = flags["content"];
    added[content] = added_token(content, std::stoi(id), flags);
  }
  const json by_content = object_in(files, "added_tokens.json");
  for (const auto& [content, id] : by_content.items()) added.emplace(content, added_token(content, id, json::object()));
  const auto name_special = [&](const json& value) {
    const json flags = value.is_object() ? value : json::object();
    const json content = value.is_object() ? value.value("content", json()) : value;
    if (content.is_string() && vocab.contains(content.get<std::string>()))
      added.emplace(content, added_token(content, vocab[content.get<std::string>()], flags));
  };
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    for (const json& where : {config, object_in(files, "special_tokens_map.json")}) {
      if (where.contains(name)) name_special(where[name]);
    }
  }
  name_special("<|endoftext|>");
  OrderedJson parts = {{"added_tokens", OrderedJson::array()}};
  for (const auto& [content, token] : added) parts["added_tokens"].push_back(token);
  const bool prefix = config.value("add_prefix_space", json(false)) == json(true);
  parts["pre_tokenizer"] = byte_level_json(prefix, true);
  parts["decoder"] = byte_level_json(true, true);
  parts["model"] = bpe_model_json({{"vocab", vocab}, {"merges", std::move(merges)}});
  return tokenizer_json_of_parts(parts);
}

}  // namespace ashlar::data
