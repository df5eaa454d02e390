#pragma once

#include <string>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// Returns the tokenizer.json for `vocab.json` and `merges.txt`: byte-level BPE with the steps of the tokenizer class
/// that the files name (tokenizer_classes.h), or with GPT-2's steps if they name none. Added tokens are those that
/// add_folder_tokens finds. If the files name no class, `<|endoftext|>` is also added if it is in the vocabulary.
/// `add_prefix_space`, `add_bos_token` and `add_eos_token` come from tokenizer_config.json. With `files.rules` = 1 the
/// files are read as by older releases.
std::string tokenizer_json_of_vocab_and_merges(const TokenizerFiles& files);

/// True if version 1 of the rules (TokenizerFiles::rules) would give other ids or another template, or would refuse the
/// files. `now` is the tokenizer.json made from `files` by the current rules. False if `files` itself uses version 1.
bool pairs_differ_by_rules(const TokenizerFiles& files, const std::string& now);

}  // namespace ashlar::data
