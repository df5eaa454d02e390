#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ashlar::data {

struct SentencePieceTraining {
  bool unigram = false;  ///< otherwise BPE
  int64_t vocab_size = 32'000;
  int64_t sentences = 1'000'000;
};

struct SentencePieceModel {
  std::string bytes;  ///< what a .model file holds
  int64_t vocab_size = 0;
};

/// Calls the function it is given for each text of a corpus, in order.
using EachText = std::function<void(const std::function<void(std::string_view)>&)>;

/// Trains a SentencePiece model through its library on the lines of texts, or on `sentences` of them taken by chance
/// (the same for the same corpus): byte fallback, no normalisation, white space kept as it is. Lines over 4 KB are left
/// out, as the library does. Input errors say what the library finds wrong, such as a vocabulary that the text is too
/// small for.
SentencePieceModel train_sentencepiece(const SentencePieceTraining& training, const EachText& corpus);

}  // namespace ashlar::data
