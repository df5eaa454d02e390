#pragma once

#include <memory>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// Ranks of byte strings, one `BASE64 RANK` per line. The file contains neither the splitting pattern nor the special
/// tokens: for the published files (r50k, p50k, cl100k, o200k, Llama 3) they are known by the number of ranks;
/// otherwise a JSON file in the same folder (NAME.json for NAME.tiktoken, or about.json) gives "pattern" and "special",
/// an object of names and ids. Accepts any bytes: invalid UTF-8 is encoded by byte pairs.
bool is_tiktoken(const TokenizerFiles& files);
std::unique_ptr<FormTokenizer> open_tiktoken(const TokenizerFiles& files);

}  // namespace ashlar::data
