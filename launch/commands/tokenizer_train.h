#pragma once

#include <ostream>
#include <span>
#include <string>

namespace ashlar::launch {

/// The part of `ashlar tokenizer --help` about train.
extern const char* const kTokenizerTrainHelp;

/// `ashlar tokenizer train INPUT... --out DIR [options]`: learns a tokenizer from a corpus. `args` are the words after
/// "train".
int run_tokenizer_train(std::span<const std::string> args, std::ostream& out, std::ostream& err);

}  // namespace ashlar::launch
