#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/hash_map.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/pre_tokenizers.h"

namespace ashlar::data {

/// Counts the words of texts. GPT-2's pattern splits a text into words. One object per thread.
class WordCounter {
 public:
  WordCounter();
  /// Throws TextError for a text that is not UTF-8.
  void add(std::string_view text);
  void merge(WordCounter& other);   ///< adds the counts of `other` and clears `other`
  std::vector<WordCount> finish();  ///< sorted by word

 private:
  std::unique_ptr<PreTokenizer> splitter_;
  Regex::Scratch scratch_;
  Pieces pieces_;
  HashMap<std::string, int64_t> counts_;
};

}  // namespace ashlar::data
