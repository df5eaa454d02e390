#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Spelling of the end-of-document id for tokenizers that define only the id.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

using OrderedJson = nlohmann::ordered_json;

/// Returns a tokenizer.json from `parts` (added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model), in
/// the order of the `tokenizers` library. An absent part becomes null. `indent` is the argument of nlohmann's dump.
std::string tokenizer_json_of_parts(const OrderedJson& parts, int indent = -1);

/// Returns the BPE model of a tokenizer.json. `parts` contains the fields of the model, at least vocab. Absent
/// fields get defaults that have no effect.
OrderedJson bpe_model_json(OrderedJson parts);

/// Appends a token without checking for duplicates. Precondition: `vocab` does not contain it.
void add_token(OrderedJson& vocab, const std::string& token, int64_t id);

/// Returns the JSON of a pre-tokenizer or decoder of type "ByteLevel".
OrderedJson byte_level_json(bool add_prefix_space, bool use_regex);

/// Returns an entry of added_tokens in which every flag except `special` is false.
OrderedJson added_token_json(const std::string& content, int64_t id, bool special = true);

}  // namespace ashlar::data
