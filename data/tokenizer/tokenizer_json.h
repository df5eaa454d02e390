#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ashlar::data {

/// How the end of a document is spelled where a tokenizer has an id for it and no spelling.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

using OrderedJson = nlohmann::ordered_json;

/// A tokenizer.json of the parts that `parts` has (added_tokens, normalizer, pre_tokenizer, post_processor, decoder,
/// model), in the order in which the `tokenizers` library writes them, null for the others. `indent` as in nlohmann's
/// dump.
std::string tokenizer_json_of_parts(const OrderedJson& parts, int indent = -1);

/// The model of a tokenizer.json for BPE: what `parts` has of its fields (vocab and merges at least), else what leaves
/// a step out.
OrderedJson bpe_model_json(OrderedJson parts);

/// Puts a token behind those of an object, which has none of that spelling.
void add_token(OrderedJson& vocab, const std::string& token, int64_t id);

/// The pre-tokenizer and decoder "ByteLevel".
OrderedJson byte_level_json(bool add_prefix_space, bool use_regex);

/// An entry of added_tokens, every flag false but `special`.
OrderedJson added_token_json(const std::string& content, int64_t id, bool special = true);

}  // namespace ashlar::data
