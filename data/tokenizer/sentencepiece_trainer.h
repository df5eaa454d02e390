#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ashlar::data {

struct SentencePieceTraining {
  bool unigram = false;  ///< true: Unigram; false: BPE
  int64_t vocab_size = 32'000;
  int64_t sentences = 1'000'000;
};

struct SentencePieceModel {
  std::string bytes;  ///< content of a .model file
  int64_t vocab_size = 0;
};

/// Calls the given function for each text of a corpus, in order.
using EachText = std::function<void(const std::function<void(std::string_view)>&)>;

/// Trains a SentencePiece model with the SentencePiece library, on the lines of a corpus. If the corpus has more than
/// `sentences` lines, trains on a random sample of `sentences` lines, the same sample for the same corpus. The model
/// has byte fallback, no normalization and unchanged white space. Lines longer than 4192 bytes are skipped, as in the
/// library. Input errors contain the message of the library, for example that the vocabulary is too large for the text.
SentencePieceModel train_sentencepiece(const SentencePieceTraining& training, const EachText& corpus);

}  // namespace ashlar::data
