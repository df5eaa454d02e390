#include "data/read/corpus_entropy.h"

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash_map.h"

namespace ashlar::data {
namespace {

/// Counts of ordered pairs of tokens. If the vocabulary is small, the counts are in a table, so that counting a pair is
/// one addition. Otherwise they are in a hash map.
class PairCounts {
 public:
  explicit PairCounts(int64_t vocab) : vocab_(vocab), table_(vocab <= kMaxTable ? vocab * vocab : 0, 0) {}

  /// Adds one to the count of a pair. Returns the previous count.
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

/// Calls visit(previous, id) for each token of a part; `previous` is -1 for the first.
template <typename Visit>
void for_each_token(TokenDataset& dataset, Part part, const Visit& visit) {
  int32_t previous = -1;
  for (int64_t c = 0; c < dataset.num_chunks(part); ++c) {
    for (const int32_t id : dataset.read_chunk(part, c)) {
      visit(previous, id);
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
    throw input_error(
        "data", dataset.directory(), " has ", entropy.validation_tokens,
        " tokens in its validation part, expected at least 2 to compute entropies; build the dataset with a",
        " larger --validation");
  }
  const auto vocab = static_cast<size_t>(V);
  std::vector<int64_t> count(vocab, 0), followed(vocab, 0), successors(vocab, 0), validation(vocab, 0);
  PairCounts pairs(V);
  for_each_token(dataset, Part::kTrain, [&](int32_t a, int32_t b) {
    ++count[b];
    if (a < 0) return;
    ++followed[a];
    if (pairs.add(a, b) == 0) ++successors[a];
  });
  const auto total = static_cast<double>(dataset.tokens(Part::kTrain) + V);
  double sum = 0;
  for_each_token(dataset, Part::kValidation, [&](int32_t a, int32_t b) {
    ++validation[b];
    if (a < 0) return;
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
