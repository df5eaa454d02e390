#include "data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>

#include "core/base/error.h"
#include "core/base/hash_map.h"
#include "data/tokenizer/byte_characters.h"

namespace ashlar::data {
namespace {

using Pair = std::pair<int32_t, int32_t>;

/// A candidate for a merge: the pair, its count when it was queued, and the words that contained it then.
struct PairCount {
  Pair pair;
  int64_t count = 0;
  std::vector<int32_t> words;  ///< indices in words_, ascending
};

/// Order of merges: true if `a` is merged after `b`.
struct Later {
  bool operator()(const PairCount& a, const PairCount& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Trainer {
 public:
  Trainer(const std::vector<WordCount>& words, const BpeTraining& training) : training_(training) {
    put_alphabet();
    put_words(words);
  }

  TrainedBpe run() {
    count_pairs();
    while (static_cast<int64_t>(out_.tokens.size()) < training_.vocab_size && !queue_.empty()) {
      PairCount top = queue_.top();
      queue_.pop();
      const int64_t count = counts_[top.pair];
      if (top.count != count) {  // later merges have changed the count of the pair
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (count < 1 || count < training_.min_frequency) break;
      join(top);
      if (training_.progress && out_.tokens.size() % 256 == 0)
        training_.progress(static_cast<int64_t>(out_.tokens.size()));
    }
    return std::move(out_);
  }

 private:
  /// A word: its `length` symbols begin at `begin` in symbols_. Merges reduce `length`.
  struct Word {
    int64_t begin = 0;
    int32_t length = 0;
    int64_t count = 0;
  };

  void put_alphabet();
  void put_words(const std::vector<WordCount>& words);
  void count_pairs();
  void join(const PairCount& candidate);
  void change(Pair pair, int64_t by, int32_t word);

  const BpeTraining& training_;
  TrainedBpe out_;
  std::array<int32_t, 256> id_of_byte_{};
  HashMap<std::string, int32_t> ids_;
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  HashMap<Pair, int64_t> counts_;
  /// Pairs that the current merge has made, and the words that contain them.
  HashMap<Pair, std::vector<int32_t>> met_;
  std::priority_queue<PairCount, std::vector<PairCount>, Later> queue_;
};

void Trainer::put_alphabet() {
  out_.tokens = training_.special_tokens;
  const ByteCharacters characters;
  std::array<int, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), 0);
  std::sort(bytes.begin(), bytes.end(), [&](int a, int b) {
    return characters.of_byte(static_cast<uint8_t>(a)) < characters.of_byte(static_cast<uint8_t>(b));
  });
  for (const int byte : bytes) {
    id_of_byte_[static_cast<size_t>(byte)] = static_cast<int32_t>(out_.tokens.size());
    out_.tokens.emplace_back(1, static_cast<char>(byte));
    ids_.emplace(out_.tokens.back(), id_of_byte_[static_cast<size_t>(byte)]);
  }
}

void Trainer::put_words(const std::vector<WordCount>& words) {
  for (const WordCount& word : words) {
    words_.push_back({static_cast<int64_t>(symbols_.size()), static_cast<int32_t>(word.word.size()), word.count});
    for (const char c : word.word) symbols_.push_back(id_of_byte_[static_cast<uint8_t>(c)]);
  }
}

void Trainer::count_pairs() {
  for (size_t w = 0; w < words_.size(); ++w) {
    const int32_t* const symbols = symbols_.data() + words_[w].begin;
    for (int32_t i = 0; i + 1 < words_[w].length; ++i)
      change({symbols[i], symbols[i + 1]}, words_[w].count, static_cast<int32_t>(w));
  }
  for (auto& [pair, words] : met_) queue_.push({pair, counts_[pair], std::move(words)});
  met_.clear();
}

void Trainer::change(Pair pair, int64_t by, int32_t word) {
  counts_[pair] += by;
  if (by <= 0) return;
  std::vector<int32_t>& words = met_[pair];
  if (words.empty() || words.back() != word) words.push_back(word);
}

void Trainer::join(const PairCount& candidate) {
  const auto [left, right] = candidate.pair;
  // Two merges can make the same token, which then keeps its first id.
  const auto next = static_cast<int32_t>(out_.tokens.size());
  const auto [at, fresh] = ids_.emplace(out_.tokens[left] + out_.tokens[right], next);
  const int32_t joined = at->second;
  if (fresh) out_.tokens.push_back(at->first);
  out_.merges.push_back(candidate.pair);
  for (const int32_t w : candidate.words) {
    Word& word = words_[w];
    int32_t* const symbols = symbols_.data() + word.begin;
    // Symbols are read at `i` and written at `kept`; symbols before `kept` are final.
    int32_t kept = 0;
    for (int32_t i = 0; i < word.length; ++i) {
      if (symbols[i] != left || i + 1 == word.length || symbols[i + 1] != right) {
        symbols[kept++] = symbols[i];
        continue;
      }
      if (kept > 0) {
        change({symbols[kept - 1], left}, -word.count, w);
        change({symbols[kept - 1], joined}, word.count, w);
      }
      ++i;
      if (i + 1 < word.length) {
        change({right, symbols[i + 1]}, -word.count, w);
        change({joined, symbols[i + 1]}, word.count, w);
      }
      symbols[kept++] = joined;
    }
    word.length = kept;
  }
  for (auto& [pair, words] : met_) {
    const int64_t count = counts_[pair];
    if (count > 0) queue_.push({pair, count, std::move(words)});
  }
  met_.clear();
}

}  // namespace

TrainedBpe train_bpe(const std::vector<WordCount>& words, const BpeTraining& training) {
  const auto least = static_cast<int64_t>(training.special_tokens.size()) + 256;
  if (training.vocab_size < least) {
    throw input_error("tokenizer train", "a vocabulary of ", training.vocab_size, " has no room for 256 bytes and ",
                      training.special_tokens.size(), " special tokens; use a --vocab-size of at least ", least);
  }
  return Trainer(words, training).run();
}

}  // namespace ashlar::data
