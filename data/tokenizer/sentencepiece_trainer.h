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
  std::string bytes;  ///< content of a .model file
  int64_t vocab_size = 0;
};

/// Calls the given function for each text of a corpus, in order.
using EachText = std::function<void(const std::function<void(std::string_view)>&)>;

/// Trains a SentencePiece model with its library on the lines of texts, or on `sentences` randomly sampled lines (the
/// same for the same corpus): byte fallback, no normalization, white space unchanged. Lines over 4 KB are skipped, as
/// in the library. Input errors contain the library's message, such as a vocabulary too large for the text.
SentencePieceModel train_sentencepiece(const SentencePieceTraining& training, const EachText& corpus);

}  // namespace ashlar::data
