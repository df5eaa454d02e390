#pragma once

#include <cstdint>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace ashlar::data {

/// Whether a tokenizer is the one that a token file names.
enum class TokenizerAgreement : uint8_t { kAgrees, kDiffers, kUnknown };

/// Compares the tokenizer that a token file names, a path or a name on the Hugging Face hub, with the one given as
/// `given`. A path that exists is opened: the texts of all ids must be equal. A name agrees if a folder of the path
/// `given` has it. kUnknown: neither path nor name can be compared.
TokenizerAgreement compare_tokenizers(const std::string& named, const std::string& given, const Tokenizer& tokenizer);

}  // namespace ashlar::data
