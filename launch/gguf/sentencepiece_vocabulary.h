#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "launch/gguf/gguf_file.h"

namespace ashlar::gguf {

/// Returns the tokens of a tokenizer that was read from a SentencePiece `.model`, as metadata tokenizer.ggml.* of
/// llama.cpp's model "llama"; nothing for any other tokenizer. Rows of the model without a piece become unused tokens.
/// Throws an input error for a model that llama.cpp would not reproduce: Unigram, with normalization, without bytes, or
/// with added tokens.
std::optional<std::vector<Entry>> sentencepiece_vocabulary(const data::Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace ashlar::gguf
