#pragma once

#include <memory>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// True if the files have a SentencePiece model: one `.model` that begins like its protocol buffer. (Llama 3's
/// tokenizer.model is a text list of ranks.)
bool holds_sentencepiece(const TokenizerFiles& files);

/// The tokenizer of a SentencePiece `.model`, including its normalizer, equal to its library: special tokens in a text
/// are text. Unigram models are encoded by SentencePieceUnigram (2.7 times as fast, and independent of the library's
/// release), all others by the library, which also decodes. Bytes that are not UTF-8 are a TextError. Source: Kudo and
/// Richardson 2018, arXiv:1808.06226; the library.
std::unique_ptr<FormTokenizer> open_sentencepiece(const TokenizerFiles& files);

}  // namespace ashlar::data
