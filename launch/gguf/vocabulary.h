#pragma once

#include <cstdint>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "launch/gguf/gguf_file.h"
#include "launch/hf/hf_config.h"

namespace ashlar::gguf {

/// Returns the metadata tokenizer.ggml.* of a byte-level BPE tokenizer for a model of `vocab_size` rows. Rows without a
/// token become unused tokens. Throws an input error for a tokenizer that llama.cpp would not reproduce: of another
/// kind, or whose pre-tokenizer is not one that it knows by name.
std::vector<Entry> vocabulary_of(const data::Tokenizer& tokenizer, const hf::HfExtras& extras, int64_t vocab_size);

}  // namespace ashlar::gguf
