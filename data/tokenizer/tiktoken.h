#pragma once

#include <memory>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// Ranks of byte strings, `BASE64 RANK` a line. The file says neither how text is split nor what the special tokens
/// are: those of the published files (r50k, p50k, cl100k, o200k, Llama 3) are known by their number of ranks; for
/// another, a JSON file beside it (NAME.json for NAME.tiktoken, or about.json) gives "pattern" and "special", an object
/// of names and ids. Takes any bytes: what is no UTF-8 is encoded byte pair by byte pair.
bool is_tiktoken(const TokenizerFiles& files);
std::unique_ptr<FormTokenizer> open_tiktoken(const TokenizerFiles& files);

}  // namespace ashlar::data
