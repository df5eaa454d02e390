#pragma once

#include <string>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// The tokenizer.json of `vocab.json` and `merges.txt`, the form of GPT-2: byte-level BPE, split by GPT-2's pattern.
/// Special tokens are those that tokenizer_config.json, special_tokens_map.json and added_tokens.json name, and
/// `<|endoftext|>` where the vocabulary has it; `add_prefix_space` comes from tokenizer_config.json.
std::string tokenizer_json_of_vocab_and_merges(const TokenizerFiles& files);

}  // namespace ashlar::data
