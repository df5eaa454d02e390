#pragma once

#include <memory>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// True if the files have a tiktoken file: byte strings and their ranks, one `BASE64 RANK` per line. Such a file
/// contains neither the splitting pattern nor the special tokens. For the published files (r50k, p50k, cl100k, o200k,
/// Llama 3), the number of ranks determines the pattern and the special tokens. For other files, a JSON file in the
/// same folder (NAME.json for NAME.tiktoken, or about.json) gives "pattern" and "special", an object of names and ids.
/// The tokenizer accepts any bytes: it encodes invalid UTF-8 by byte-pair merges without splitting.
bool is_tiktoken(const TokenizerFiles& files);
std::unique_ptr<FormTokenizer> open_tiktoken(const TokenizerFiles& files);

}  // namespace ashlar::data
