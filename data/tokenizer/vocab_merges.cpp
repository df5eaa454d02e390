#include "data/tokenizer/vocab_merges.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/io/json.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/canonical.h"
#include "data/tokenizer/folder_tokens.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/tokenizer/tokenizer_classes.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

OrderedJson added_token(const std::string& content, int64_t id, const json& flags) {
  OrderedJson token = added_token_json(content, id);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
    if (const auto at = flags.find(flag); at != flags.end()) token[flag] = *at;
  }
  return token;
}

OrderedJson merges_of(const TokenizerFiles& files) {
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
  return merges;
}

OrderedJson model_of(const TokenizerFiles& files, const json& vocab) {
  for (const auto& [token, id] : vocab.items()) {
    if (token.ends_with("</w>"))
      throw input_error("tokenizer", files.shown, ": vocab.json: ", printable(token),
                        ": end_of_word_suffix is not supported; expected byte-level BPE");
  }
  return bpe_model_json({{"vocab", vocab}, {"merges", merges_of(files)}});
}

/// Builds the tokenizer.json as older releases did (rules 1): with GPT-2's pattern for every class.
std::string json_of_rules_1(const TokenizerFiles& files, const json& vocab) {
  const json config = object_in(files, "tokenizer_config.json");
  std::map<std::string, OrderedJson> added;
  const json decoder = config.value("added_tokens_decoder", json::object());
  for (const auto& [id, flags] : decoder.items()) {
    const bool good = !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos &&
                      flags.is_object() && flags.contains("content") && flags["content"].is_string();
    if (!good)
      throw input_error(
          "tokenizer", files.shown,
          ": tokenizer_config.json: added_tokens_decoder: expected each key to be a token id, and each value ",
          "to be an object with a string \"content\"; correct the entry ", printable(id));
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
  parts["model"] = model_of(files, vocab);
  return tokenizer_json_of_parts(parts);
}

bool flag(const json& config, const char* key) { return config.value(key, json()) == json(true); }

/// Writes the normalizer, the pre-tokenizer and the decoder of a tokenizer class to `parts`.
void put_steps(Steps steps, bool prefix, OrderedJson& parts) {
  const OrderedJson nfc = {{"type", "NFC"}};
  const auto after = [&](OrderedJson first, bool use_regex) {
    return OrderedJson{{"type", "Sequence"}, {"pretokenizers", {std::move(first), byte_level_json(prefix, use_regex)}}};
  };
  parts["decoder"] = byte_level_json(true, true);
  parts["pre_tokenizer"] = byte_level_json(prefix, true);
  if (steps != Steps::kGpt2) parts["normalizer"] = nfc;
  if (steps == Steps::kQwen2) {
    parts["pre_tokenizer"] =
        after({{"type", "Split"}, {"pattern", {{"Regex", kQwen2Pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
              false);
  }
  if (steps == Steps::kCohere) parts["pre_tokenizer"] = after({{"type", "Digits"}, {"individual_digits", true}}, true);
}

/// Returns the post-processor that adds these special tokens before and after a text; null if there are none.
OrderedJson around(const std::vector<const AddedToken*>& before, const std::vector<const AddedToken*>& behind) {
  if (before.empty() && behind.empty()) return nullptr;
  OrderedJson single = OrderedJson::array(), special = OrderedJson::object();
  const auto put = [&](const AddedToken* token) {
    single.push_back({{"SpecialToken", {{"id", token->content}, {"type_id", 0}}}});
    special[token->content] = {{"id", token->content}, {"ids", {token->id}}, {"tokens", {token->content}}};
  };
  for (const AddedToken* token : before) put(token);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const AddedToken* token : behind) put(token);
  return {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", OrderedJson::array()}, {"special_tokens", special}};
}

Error disagreement(const TokenizerFiles& files, const char* file, const std::string& sentence) {
  return input_error("tokenizer", files.shown, ": ", file, ": ", sentence,
                     "; use the tokenizer.json that AutoTokenizer.from_pretrained(...).save_pretrained(DIR) writes");
}

/// Throws an input error if tokenizer_config.json lacks a key whose default differs between releases of transformers.
void check_said(const TokenizerFiles& files, const TokenizerClass& own, const json& config) {
  const auto missing_error = [&](const char* what) {
    return input_error(
        "tokenizer", files.shown, ": the tokenizer class ", own.name, " needs ", what,
        " in tokenizer_config.json, since releases of transformers have different defaults; add the key");
  };
  if (own.must_say == "add_prefix_space" && !config.value("add_prefix_space", json()).is_boolean())
    throw missing_error("\"add_prefix_space\": false");
  if (own.must_say != "mask_token") return;
  const std::string mask = special_token(files, own.usual, "mask");
  const json mask_token = config.value("mask_token", json());
  if (mask.empty() || (mask_token.is_object() && mask_token.contains("lstrip"))) return;
  const json decoder = config.value("added_tokens_decoder", json::object());
  for (const auto& [id, token] : decoder.items()) {
    if (token.is_object() && token.value("content", json()) == json(mask)) return;
  }
  throw missing_error("its \"mask_token\" as an object with \"content\" and \"lstrip\"");
}

/// Throws an input error if slow and fast classes read different merges. The slow (Python) classes skip the first line
/// of merges.txt and the text after the last line break. The fast (Rust) classes read every line.
void check_lines(const TokenizerFiles& files) {
  const std::string& merges = *files.find("merges.txt");
  const std::string first = merges.substr(0, merges.find_first_of("\r\n"));
  const std::string last = merges.substr(merges.rfind('\n') + 1);
  if (!first.empty() && !first.starts_with("#version"))
    throw disagreement(
        files, "merges.txt",
        str_cat("expected the line \"#version: 0.2\" before the merges, got ", printable(first),
                ": classes of transformers 4 skip the first line; add the line \"#version: 0.2\" at the top"));
  if (!last.empty() && last != first)
    throw disagreement(
        files, "merges.txt",
        str_cat("expected a line break after the last merge, ", printable(last),
                ": classes of transformers 4 skip a last merge without one; end the file with a line break"));
}

/// Throws an input error for files and settings with which a slow (Python) class of transformers 4.57 and the
/// tokenizers library give different ids.
void check_kinds_agree(const TokenizerFiles& files, const TokenizerClass& own, const json& config, const json& vocab,
                       const std::vector<AddedToken>& added) {
  const bool gpt2 = own.pairs == Steps::kGpt2, qwen2 = own.pairs == Steps::kQwen2;
  if (!gpt2 && !qwen2) return;  // these classes have no slow variant
  if (gpt2) check_lines(files);
  constexpr const char* kConfig = "tokenizer_config.json";
  if (gpt2 && flag(config, "add_prefix_space"))
    throw disagreement(files, kConfig,
                       "\"add_prefix_space\": true is not supported for vocab.json with merges.txt: the slow and the "
                       "fast class of transformers differ in texts that begin with white space");
  for (const char* key : {"add_bos_token", "add_eos_token"}) {
    const bool ignored = own.around == Around::kNothing && (qwen2 || key == std::string_view("add_eos_token"));
    if (ignored && flag(config, key))
      throw disagreement(files, kConfig,
                         str_cat("\"", key, "\": true is not supported for vocab.json with merges.txt: transformers 4 ",
                                 "ignores that key, transformers 5 does not"));
  }
  for (const AddedToken& token : added) {
    if (token.single_word)
      throw disagreement(files, kConfig,
                         str_cat("the added token ", printable(token.content), " with \"single_word\": true is not ",
                                 "supported: the slow and the fast class of transformers differ in what a word is"));
  }
  const ByteCharacters characters;
  for (int byte = 0; byte < 256; ++byte) {
    if (!vocab.contains(characters.written(std::string(1, static_cast<char>(byte)))))
      throw disagreement(
          files, "vocab.json",
          str_cat("expected a token for each of the 256 bytes, got none for byte ", byte,
                  ": the slow class of transformers reads that byte as unk_token, the fast one drops it"));
  }
}

std::string json_of_class(const TokenizerFiles& files, const json& vocab) {
  const TokenizerClass own = class_for_pairs(files);
  const json config = object_in(files, "tokenizer_config.json");
  check_said(files, own, config);
  std::vector<AddedToken> added;
  const ModelTokens model{.count = static_cast<int64_t>(vocab.size()),
                          .id_of = [&](const std::string& token) -> std::optional<int32_t> {
                            const auto at = vocab.find(token);
                            if (at == vocab.end() || !at->is_number_integer()) return std::nullopt;
                            return at->get<int32_t>();
                          }};
  const bool gpt2_end = own.name.empty() && vocab.contains(std::string(kEndOfText));
  add_folder_tokens(files, gpt2_end ? "eos=<|endoftext|>" : own.usual, model, added);
  OrderedJson parts = {{"added_tokens", OrderedJson::array()}};
  for (const AddedToken& token : added) parts["added_tokens"].push_back(json_of(token));
  parts["model"] = model_of(files, vocab);
  check_kinds_agree(files, own, config, vocab, added);
  put_steps(own.pairs, flag(config, "add_prefix_space"), parts);
  const auto named = [&](const char* kind) {
    std::vector<const AddedToken*> found;
    const std::string content = special_token(files, own.usual, kind);
    for (const AddedToken& token : added) {
      if (!content.empty() && token.content == content) found.push_back(&token);
    }
    return found;
  };
  std::vector<const AddedToken*> before, behind;
  if (own.around == Around::kClsSep) {
    before = named("cls");
    behind = named("sep");
  } else {
    if (flag(config, "add_bos_token") && own.around == Around::kNothing) before = named("bos");
    if (flag(config, "add_eos_token") || own.around == Around::kEos) behind = named("eos");
  }
  parts["post_processor"] = around(before, behind);
  return tokenizer_json_of_parts(parts);
}

}  // namespace

bool pairs_differ_by_rules(const TokenizerFiles& files, const std::string& now) {
  if (files.rules == 1) return false;
  if (!io::parse_json(now)["post_processor"].is_null()) return true;
  try {
    return canonical_tokenizer(json_of_rules_1(files, object_in(files, "vocab.json"))) != canonical_tokenizer(now);
  } catch (const Error&) {
    return true;  // rules 1 refused these files, which are supported now
  }
}

std::string tokenizer_json_of_vocab_and_merges(const TokenizerFiles& files) {
  const json vocab = object_in(files, "vocab.json");
  return files.rules == 1 ? json_of_rules_1(files, vocab) : json_of_class(files, vocab);
}

}  // namespace ashlar::data
