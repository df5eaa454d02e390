#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ashlar::data {

/// Spelling of the end-of-document id for tokenizers that have only an id for it.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

using OrderedJson = nlohmann::ordered_json;

/// A tokenizer.json from `parts` (added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model), in the
/// order of the `tokenizers` library, null for absent parts. `indent` as in nlohmann's dump.
std::string tokenizer_json_of_parts(const OrderedJson& parts, int indent = -1);

/// The BPE model of a tokenizer.json: the fields in `parts` (at least vocab and merges), defaults without effect for
/// the others.
OrderedJson bpe_model_json(OrderedJson parts);

/// Appends a token without checking for duplicates. Precondition: `vocab` does not contain it.
void add_token(OrderedJson& vocab, const std::string& token, int64_t id);

/// The pre-tokenizer and decoder "ByteLevel".
OrderedJson byte_level_json(bool add_prefix_space, bool use_regex);

/// An entry of added_tokens, every flag false but `special`.
OrderedJson added_token_json(const std::string& content, int64_t id, bool special = true);

}  // namespace ashlar::data
