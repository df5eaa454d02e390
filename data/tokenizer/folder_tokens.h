#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// The tokens of a model, not counting added tokens: their number, and a function that returns the id of a spelling.
struct ModelTokens {
  int64_t count = 0;
  std::function<std::optional<int32_t>(const std::string&)> id_of;
};

/// Adds the added tokens in the other files of a tokenizer's folder to `tokens`, as transformers does when it loads the
/// folder. First come the tokens of `added_tokens_decoder` in tokenizer_config.json or, if it is absent, of
/// added_tokens.json. Then come the special tokens that tokenizer_config.json names, and, without
/// `added_tokens_decoder`, those that special_tokens_map.json names. For a kind of special token that the files do not
/// name, the default of the tokenizer class is added (`usual`, see TokenizerClass). A token of the model keeps its id.
/// Any other token gets the id after the largest id added before it, but not less than the number of tokens of the
/// model. Throws an input error for an invalid entry, for an id that transformers would not assign, and if
/// split_special_tokens is true.
void add_folder_tokens(const TokenizerFiles& files, std::string_view usual, const ModelTokens& model,
                       std::vector<AddedToken>& tokens);

/// Returns the tokens of `added_tokens_decoder` or added_tokens.json, with the ids in the file.
std::vector<AddedToken> listed_tokens(const TokenizerFiles& files);

/// Returns the special token of a kind ("bos", "cls", ...) from the files, otherwise from `usual`, the defaults of the
/// class. Empty if there is none.
std::string special_token(const TokenizerFiles& files, std::string_view usual, const std::string& kind);

}  // namespace ashlar::data
