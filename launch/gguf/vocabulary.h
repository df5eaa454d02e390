#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "data/tokenizer/tokenizer.h"
#include "launch/gguf/gguf_file.h"
#include "launch/hf/hf_config.h"

namespace ashlar::gguf {

/// Returns the metadata tokenizer.ggml.* of a tokenizer for a model of `vocab_size` rows. Rows without a token become
/// unused tokens. Throws an input error for a tokenizer that llama.cpp would not reproduce: neither a byte-level BPE
/// whose pre-tokenizer it knows by name, nor a SentencePiece model of BPE.
std::vector<Entry> vocabulary_of(const data::Tokenizer& tokenizer, const hf::HfExtras& extras, int64_t vocab_size);

/// The errors of such a tokenizer, and of one with more ids than the model has rows.
Error not_expressible(std::string_view problem);
Error too_many_tokens(int64_t id, int64_t vocab_size);

}  // namespace ashlar::gguf
