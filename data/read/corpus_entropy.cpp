#include "data/read/corpus_entropy.h"

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash_map.h"

namespace ashlar::data {
namespace {

/// Counts of ordered pairs: a table for small vocabularies (one add per token), a hash map for larger ones.
class PairCounts {
 public:
  explicit PairCounts(int64_t vocab) : vocab_(vocab), table_(vocab <= kMaxTable ? vocab * vocab : 0, 0) {}

  /// Counts a pair; returns the count before this one.
  int64_t add(int32_t a, int32_t b) { return table_.empty() ? map_[a * vocab_ + b]++ : table_[a * vocab_ + b]++; }

  int64_t get(int32_t a, int32_t b) const {
    if (!table_.empty()) return table_[a * vocab_ + b];
    const auto found = map_.find(a * vocab_ + b);
    return found == map_.end() ? 0 : found->second;
  }

 private:
  static constexpr int64_t kMaxTable = 1024;
  int64_t vocab_;
  std::vector<int64_t> table_;
  HashMap<int64_t, int64_t> map_;
};

/// Calls visit(previous, id) for each token of a part after the first, visit_first(id) for the first.
template <typename First, typename Next>
void for_each_pair(TokenDataset& dataset, Part part, const First& visit_first, const Next& visit) {
  int32_t previous = -1;
  for (int64_t c = 0; c < dataset.num_chunks(part); ++c) {
    for (const int32_t id : dataset.read_chunk(part, c)) {
      if (previous < 0) {
        visit_first(id);
      } else {
        visit(previous, id);
      }
      previous = id;
    }
  }
}

}  // namespace

CorpusEntropy corpus_entropy(TokenDataset& dataset) {
  const int64_t V = dataset.manifest().vocab_size;
  CorpusEntropy entropy;
  entropy.validation_tokens = dataset.tokens(Part::kValidation);
  if (entropy.validation_tokens < 2) {
    throw input_error("data", dataset.directory(), " has ", entropy.validation_tokens,
                      " tokens in its validation part; entropies need at least 2");
  }
  const auto vocab = static_cast<size_t>(V);
  std::vector<int64_t> count(vocab, 0), followed(vocab, 0), successors(vocab, 0), validation(vocab, 0);
  PairCounts pairs(V);
  for_each_pair(
      dataset, Part::kTrain, [&](int32_t b) { ++count[b]; },
      [&](int32_t a, int32_t b) {
        ++count[b];
        ++followed[a];
        if (pairs.add(a, b) == 0) ++successors[a];
      });
  const auto total = static_cast<double>(dataset.tokens(Part::kTrain) + V);
  double sum = 0;
  for_each_pair(
      dataset, Part::kValidation, [&](int32_t b) { ++validation[b]; },
      [&](int32_t a, int32_t b) {
        ++validation[b];
        const double q = static_cast<double>(count[b] + 1) / total;
        const auto n = static_cast<double>(successors[a]);
        const double p =
            n == 0 ? q : (static_cast<double>(pairs.get(a, b)) + n * q) / (static_cast<double>(followed[a]) + n);
        sum -= std::log(p);
      });
  entropy.bigram = sum / static_cast<double>(entropy.validation_tokens - 1);
  for (const int64_t c : validation) {
    if (c == 0) continue;
    const double p = static_cast<double>(c) / static_cast<double>(entropy.validation_tokens);
    entropy.unigram -= p * std::log(p);
  }
  return entropy;
}

}  // namespace ashlar::data
