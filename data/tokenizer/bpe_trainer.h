#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ashlar::data {

/// How often a word (a piece that the splitting pattern makes of a text) is in the corpus.
struct WordCount {
  std::string word;
  int64_t count = 0;
};

struct BpeTraining {
  int64_t vocab_size = 32'000;  ///< tokens, special ones and the 256 bytes included
  int64_t min_frequency = 2;    ///< pairs that are seen less often are not joined
  std::vector<std::string> special_tokens;
  std::function<void(int64_t tokens)> progress;  ///< now and then
};

/// A vocabulary by id, as sequences of bytes except for the special tokens, which come first; then the bytes in the
/// order of the characters that stand for them, then a token a merge. A merge names its two tokens by id.
struct TrainedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<int32_t, int32_t>> merges;
};

/// Byte-pair encoding: joins the pair of neighbouring tokens that the corpus has most often, of equally frequent ones
/// that of the lower ids, until the vocabulary is full or no pair is frequent enough. The words are unique; their order
/// does not matter. The merges are those of the `tokenizers` library's BpeTrainer for its byte-level alphabet.
/// Source: Sennrich et al. 2016, arXiv:1508.07909.
TrainedBpe train_bpe(const std::vector<WordCount>& words, const BpeTraining& training);

}  // namespace ashlar::data
