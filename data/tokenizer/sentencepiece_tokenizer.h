#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/forms.h"

namespace ashlar::data {

/// Whether the files hold a SentencePiece model: one `.model` that begins as its protocol buffer does. (Llama 3's
/// tokenizer.model is a list of ranks in text.)
bool holds_sentencepiece(const TokenizerFiles& files);

/// The tokenizer of a SentencePiece `.model`, normaliser included, as its library has it: special tokens in a text are
/// text. Unigram models are encoded by SentencePieceUnigram (2.7 times as fast, and the same with any release of the
/// library), all others by the library, which also decodes. Bytes that are not UTF-8 are a TextError.
/// Source: Kudo and Richardson 2018, arXiv:1808.06226; the library.
std::unique_ptr<FormTokenizer> open_sentencepiece(const TokenizerFiles& files);

}  // namespace ashlar::data
