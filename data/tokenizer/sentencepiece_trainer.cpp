#include "data/tokenizer/sentencepiece_trainer.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "data/tokenizer/sentencepiece_library.h"

namespace ashlar::data {
namespace {

constexpr size_t kLongestLine = 4192;  // bytes, the limit of the library
// The number of threads is fixed, since it affects the result: the expectation step adds one sum per thread.
constexpr int kThreads = 16;

/// The lines of texts, or a uniform random sample of `most` lines if there are more. Source: Vitter 1985, algorithm R.
class Sample {
 public:
  explicit Sample(int64_t most) : most_(static_cast<uint64_t>(most)) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      if (end > 0 && end <= kLongestLine) add_line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void add_line(std::string_view line) {
    ++seen_;
    if (lines_.size() < most_) {
      lines_.emplace_back(line);
    } else if (const uint64_t place = random_() % seen_; place < most_) {
      lines_[place] = line;
    }
  }

  uint64_t most_, seen_ = 0;
  std::vector<std::string> lines_;
  std::mt19937_64 random_{20180806};
};

}  // namespace

SentencePieceModel train_sentencepiece(const SentencePieceTraining& training, const EachText& corpus) {
  Sample sample(training.sentences);
  corpus([&](std::string_view text) { sample.add(text); });
  if (sample.lines().empty())
    throw input_error("tokenizer train", "the input has no line of 1 to ", kLongestLine,
                      " bytes; give text with shorter lines");
  const std::map<std::string, std::string> options = {
      {"model_type", training.unigram ? "unigram" : "bpe"},
      {"vocab_size", str_cat(training.vocab_size)},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"max_sentence_length", str_cat(kLongestLine)},
      {"num_threads", str_cat(kThreads)},
      {"minloglevel", "3"},
  };
  SentencePieceModel model;
  const std::string wrong = SentencePieceLibrary::train(options, sample.lines(), model.bytes);
  if (!wrong.empty())
    throw input_error("tokenizer train", "the SentencePiece library cannot train on this text: ", wrong);
  SentencePieceLibrary library;
  const std::string unread = library.load(model.bytes);
  ASHLAR_CHECK(unread.empty(), unread);
  model.vocab_size = library.size();
  return model;
}

}  // namespace ashlar::data
