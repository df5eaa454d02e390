#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ashlar::data {

/// The count of a word (a piece of text from the splitting pattern) in the corpus.
struct WordCount {
  std::string word;
  int64_t count = 0;
};

struct BpeTraining {
  int64_t vocab_size = 32'000;  ///< tokens, including special ones and the 256 bytes
  int64_t min_frequency = 2;    ///< rarer pairs are not merged
  std::vector<std::string> special_tokens;
  std::function<void(int64_t tokens)> progress;  ///< now and then
};

/// A vocabulary by id, as byte sequences except for the special tokens, which come first; then the bytes in the order
/// of their characters, then one token per merge. A merge has the ids of its two tokens.
struct TrainedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<int32_t, int32_t>> merges;
};

/// Byte-pair encoding: merges the most frequent pair of adjacent tokens in the corpus, on ties the pair with the lower
/// ids, until the vocabulary is full or no pair is frequent enough. The words must be unique; their order does not
/// matter. The merges equal those of the `tokenizers` library's BpeTrainer for its byte-level alphabet.
/// Source: Sennrich et al. 2016, arXiv:1508.07909.
TrainedBpe train_bpe(const std::vector<WordCount>& words, const BpeTraining& training);

}  // namespace ashlar::data
