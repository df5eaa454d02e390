#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// The ids of a model's own tokens, without added tokens.
struct ModelTokens {
  int64_t count = 0;
  std::function<std::optional<int32_t>(const std::string&)> id_of;
};

/// Adds to `tokens` those in the other files of a tokenizer's folder, as transformers does when it loads the folder:
/// `added_tokens_decoder` of tokenizer_config.json, otherwise added_tokens.json; then the special tokens of
/// tokenizer_config.json and special_tokens_map.json, or those of the class (`usual`, see TokenizerClass). A token of
/// the model keeps its id, another one gets the next id after all. Input errors: an invalid entry, an id that
/// transformers would not assign, split_special_tokens.
void add_folder_tokens(const TokenizerFiles& files, std::string_view usual, const ModelTokens& model,
                       std::vector<AddedToken>& tokens);

/// Tokens of `added_tokens_decoder` or added_tokens.json, with the ids in the file.
std::vector<AddedToken> listed_tokens(const TokenizerFiles& files);

/// The special token of a kind ("bos", "cls", ...) from the files, otherwise from the class. Empty for none.
std::string special_token(const TokenizerFiles& files, std::string_view usual, const std::string& kind);

}  // namespace ashlar::data
