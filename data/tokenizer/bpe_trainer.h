#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ashlar::data {

/// A word (a match of the splitting pattern) and the number of times that it occurs in the corpus.
struct WordCount {
  std::string word;
  int64_t count = 0;
};

struct BpeTraining {
  int64_t vocab_size = 32'000;  ///< number of tokens, including special tokens and the 256 bytes
  int64_t min_frequency = 2;    ///< pairs that occur less often are not merged
  std::vector<std::string> special_tokens;
  std::function<void(int64_t tokens)> progress;  ///< called when the number of tokens is a multiple of 256
};

/// A trained vocabulary. `tokens` is indexed by id: first the special tokens, then the 256 single bytes in the order of
/// their ByteCharacters, then the merged tokens. Bytes and merged tokens are byte strings. A merge consists of the ids
/// of its two tokens.
struct TrainedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<int32_t, int32_t>> merges;
};

/// Trains byte-pair encoding: merges the most frequent pair of adjacent tokens in the corpus, on ties the pair with the
/// lower ids, until the vocabulary is full or no pair is frequent enough. The words must be unique; their order does
/// not matter. The merges equal those of the `tokenizers` library's BpeTrainer for its byte-level alphabet.
/// Source: Sennrich et al. 2016, arXiv:1508.07909.
TrainedBpe train_bpe(const std::vector<WordCount>& words, const BpeTraining& training);

}  // namespace ashlar::data
