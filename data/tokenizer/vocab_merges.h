#pragma once

#include <string>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// The tokenizer.json of `vocab.json` and `merges.txt`: byte-level BPE, with the steps of the class named by the files
/// (tokenizer_classes.h), GPT-2's if none. Added tokens are those of folder_tokens.h, and `<|endoftext|>` if the
/// vocabulary of files without a class has it; `add_prefix_space`, `add_bos_token` and `add_eos_token` come from
/// tokenizer_config.json. `files.rules` = 1 reads them as older releases did.
std::string tokenizer_json_of_vocab_and_merges(const TokenizerFiles& files);

/// True if rules 1 give other ids or another template than `now`, the tokenizer.json of the same files.
bool pairs_differ_by_rules(const TokenizerFiles& files, const std::string& now);

}  // namespace ashlar::data
