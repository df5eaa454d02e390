#include "data/tokenizer/word_counter.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "core/base/error.h"
#include "data/tokenizer/pipeline_tokenizer.h"

namespace ashlar::data {

WordCounter::WordCounter() {
  const nlohmann::json step = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  splitter_ = read_pre_tokenizer(Fields(step, "pre_tokenizer"));
}

void WordCounter::add(std::string_view text) {
  check_text(text);
  pieces_.reset(text, true);
  ASHLAR_CHECK(splitter_->apply_without_mapping(pieces_, scratch_), "ByteLevel maps bytes");
  for (const Span span : pieces_.spans) {
    const std::string_view word = pieces_.piece(span);
    const auto at = counts_.find(absl::string_view(word.data(), word.size()));
    if (at != counts_.end()) {
      ++at->second;
    } else {
      counts_.emplace(std::string(word), 1);
    }
  }
}

void WordCounter::merge(WordCounter& other) {
  for (const auto& [word, count] : other.counts_) counts_[word] += count;
  other.counts_.clear();
}

std::vector<WordCount> WordCounter::finish() {
  std::vector<WordCount> words;
  words.reserve(counts_.size());
  for (const auto& [word, count] : counts_) words.push_back({word, count});
  counts_ = {};
  std::sort(words.begin(), words.end(), [](const WordCount& a, const WordCount& b) { return a.word < b.word; });
  return words;
}

}  // namespace ashlar::data
