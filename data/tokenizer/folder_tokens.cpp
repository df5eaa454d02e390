#include "data/tokenizer/folder_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "data/tokenizer/tokenizer_classes.h"

namespace ashlar::data {
namespace {

using nlohmann::json;

// Kinds of special tokens, in the order in which transformers adds the tokens. The key of "bos" is bos_token.
constexpr const char* kTokenKinds[] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};
constexpr const char* kLists[] = {"additional_special_tokens", "extra_special_tokens"};

class FolderTokens {
 public:
  FolderTokens(const TokenizerFiles& files, std::string_view usual)
      : files_(files), usual_(usual), config_(object_in(files, "tokenizer_config.json")) {
    // Older files, without added_tokens_decoder, name special tokens in special_tokens_map.json.
    if (config_.contains("added_tokens_decoder")) return;
    const json map = object_in(files, "special_tokens_map.json");
    for (const auto& [key, value] : map.items()) config_[key] = value;
  }

  void check() const {
    if (config_.value("split_special_tokens", json()) == json(true))
      throw error("tokenizer_config.json", "split_special_tokens = true is not supported; set it to false");
  }

  /// Returns the tokens that the files list with ids, sorted by id.
  std::vector<AddedToken> listed() const {
    std::vector<AddedToken> tokens;
    if (const auto decoder = config_.find("added_tokens_decoder"); decoder != config_.end() && !decoder->is_null()) {
      if (!decoder->is_object())
        throw error("tokenizer_config.json", "added_tokens_decoder: expected an object; correct the file");
      for (const auto& [id, flags] : decoder->items()) {
        tokens.push_back(token_of(flags, "added_tokens_decoder"));
        tokens.back().id = id_of(id);
      }
    } else {
      json ids = object_in(files_, "added_tokens.json");
      // An added_tokens.json with a "model" is a tokenizer.json that the user gave under this name.
      if (ids.contains("model") && ids["model"].is_object()) ids = json::object();
      std::set<std::string> names;
      for (const AddedToken& token : named()) names.insert(token.content);
      for (const auto& [content, id] : ids.items()) {
        if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > static_cast<double>(kMaxTokenId))
          throw error("added_tokens.json", str_cat("the id of ", printable(content),
                                                   " is not a number in the range of ids; correct the file"));
        const bool special = names.contains(content);
        tokens.push_back({.id = id.get<int32_t>(), .content = content, .special = special, .normalized = !special});
      }
    }
    std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return tokens;
  }

  /// Returns the special tokens that the files name without ids.
  std::vector<AddedToken> named() const {
    std::vector<AddedToken> tokens;
    for (const char* kind : kTokenKinds) {
      if (auto token = of_kind(kind)) tokens.push_back(std::move(*token));
    }
    for (const char* key : kLists) {
      const auto list = config_.find(key);
      if (list == config_.end() || !list->is_structured()) continue;
      for (const json& value : *list) tokens.push_back(token_of(value, key));
    }
    for (AddedToken& token : tokens) token.special = true;
    return tokens;
  }

  std::optional<AddedToken> of_kind(const std::string& kind) const {
    const auto at = config_.find(kind + "_token");
    if (at != config_.end()) {
      if (at->is_null()) return std::nullopt;
      return token_of(*at, kind + "_token");
    }
    // An entry of usual_ is "KIND=TOKEN", or "KIND<=TOKEN" for a token with lstrip.
    for (size_t begin = 0; begin < usual_.size();) {
      const size_t end = std::min(usual_.find(' ', begin), usual_.size());
      const std::string_view entry = usual_.substr(begin, end - begin);
      const size_t is = entry.find('=');
      begin = end + 1;
      const bool lstrip = entry[is - 1] == '<';
      if (entry.substr(0, lstrip ? is - 1 : is) != kind) continue;
      return AddedToken{.content = std::string(entry.substr(is + 1)), .special = true, .lstrip = lstrip};
    }
    return std::nullopt;
  }

  Error error(const char* file, const std::string& sentence) const {
    return input_error("tokenizer", files_.shown, ": ", file, ": ", sentence);
  }

 private:
  AddedToken token_of(const json& value, const std::string& where) const {
    AddedToken token;
    if (value.is_string()) {
      token.content = value.get<std::string>();
      token.special = true;
      return token;
    }
    const auto content = value.is_object() ? value.find("content") : value.end();
    if (!value.is_object() || content == value.end() || !content->is_string())
      throw error("tokenizer_config.json",
                  str_cat(escaped(where), ": expected a token as an object with \"content\"; correct the file"));
    token.content = content->get<std::string>();
    const auto flag = [&](const char* name, bool otherwise) {
      const auto at = value.find(name);
      if (at == value.end() || at->is_null()) return otherwise;
      if (!at->is_boolean())
        throw error("tokenizer_config.json", str_cat(escaped(where), ": ", printable(token.content), ": ", name,
                                                     ": expected true or false; correct the file"));
      return at->get<bool>();
    };
    token.special = flag("special", false);
    token.normalized = flag("normalized", !token.special);
    token.single_word = flag("single_word", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    return token;
  }

  int32_t id_of(const std::string& digits) const {
    const auto id = parse_number<int32_t>(digits);
    if (!id || *id < 0 || *id > kMaxTokenId)
      throw error("tokenizer_config.json", str_cat("added_tokens_decoder: expected token ids as keys, got ",
                                                   printable(digits), "; correct the file"));
    return *id;
  }

  const TokenizerFiles& files_;
  std::string_view usual_;
  json config_;
};

/// A list of added tokens. Tokens are added as in transformers.
class List {
 public:
  List(const ModelTokens& model, std::vector<AddedToken>& tokens) : model_(model), tokens_(tokens) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      at_.emplace(tokens_[i].content, i);
      last_ = std::max<int64_t>(last_, tokens_[i].id);
    }
  }
  bool has(const std::string& content) const { return at_.contains(content); }
  /// Adds a token and returns its id. A token that is already in the list gets the new flags.
  int32_t add(AddedToken token) {
    if (const auto at = at_.find(token.content); at != at_.end()) {
      token.id = tokens_[at->second].id;
      tokens_[at->second] = token;
      return token.id;
    }
    const auto own = model_.id_of(token.content);
    token.id = own ? *own : static_cast<int32_t>(last_ >= model_.count ? last_ + 1 : model_.count);
    last_ = std::max<int64_t>(last_, token.id);
    at_.emplace(token.content, tokens_.size());
    tokens_.push_back(token);
    return token.id;
  }

 private:
  const ModelTokens& model_;
  std::vector<AddedToken>& tokens_;
  std::unordered_map<std::string, size_t> at_;
  int64_t last_ = -1;
};

}  // namespace

void add_folder_tokens(const TokenizerFiles& files, std::string_view usual, const ModelTokens& model,
                       std::vector<AddedToken>& tokens) {
  const FolderTokens folder(files, usual);
  folder.check();
  List list(model, tokens);
  for (const AddedToken& token : folder.listed()) {
    if (token.content.empty()) continue;
    const int32_t id = list.add(token);
    if (id != token.id)
      throw folder.error(files.find("tokenizer_config.json") != nullptr ? "tokenizer_config.json" : "added_tokens.json",
                         str_cat("the added token ", printable(token.content), " should have the id ", token.id,
                                 ", but transformers gives it ", id,
                                 "; list all added tokens, with consecutive ids after the vocabulary"));
  }
  for (const AddedToken& token : folder.named()) {
    if (!token.content.empty() && !list.has(token.content)) list.add(token);
  }
}

std::vector<AddedToken> listed_tokens(const TokenizerFiles& files) { return FolderTokens(files, "").listed(); }

std::string special_token(const TokenizerFiles& files, std::string_view usual, const std::string& kind) {
  const auto token = FolderTokens(files, usual).of_kind(kind);
  return token ? token->content : "";
}

}  // namespace ashlar::data
