#include "data/read/corpus_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/build/dataset_builder.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

TEST(CorpusEntropy, ByHand) {
  testing::ScratchDir dir;
  write_dataset(dir.file("d"),
                {.train = {'a', 'b', 'a', 'b', 'a'}, .validation = {'a', 'b', 'b', 'z', 'a'}, .shard_tokens = {}});
  TokenDataset dataset(dir.file("d"));
  const CorpusEntropy entropy = corpus_entropy(dataset);
  // Validation frequencies: a 2/5, b 2/5, z 1/5.
  EXPECT_NEAR(entropy.unigram, -(0.8 * std::log(0.4) + 0.2 * std::log(0.2)), 1e-12);
  // Train: a 3, b 2 of 5, V = 257; a is followed by b twice, b by a twice, each has one successor; z is unseen.
  const double q_a = 4 / 262.0, q_b = 3 / 262.0, q_z = 1 / 262.0;
  const double expected = -(std::log((2 + q_b) / 3) + std::log(q_b / 3) + std::log(q_z / 3) + std::log(q_a)) / 4;
  EXPECT_NEAR(entropy.bigram, expected, 1e-12);
  EXPECT_EQ(entropy.validation_tokens, 5);
}

/// A vocabulary too large for a table, against plain maps.
TEST(CorpusEntropy, LargeVocabularies) {
  testing::ScratchDir dir;
  std::mt19937_64 random(5);
  std::string text;
  for (int i = 0; i < 60'000; ++i) {
    const double u = static_cast<double>(random() % 100'000) / 100'000;
    append_utf8(static_cast<char32_t>(0x4e00 + static_cast<int>(9000 * u * u)), text);
  }
  write_all(dir.file("t.txt"), text);
  BuildOptions options;
  options.inputs = {dir.file("t.txt")};
  options.out = dir.file("d");
  options.tokenizer = "characters";
  build_dataset(options);
  TokenDataset dataset(dir.file("d"));
  ASSERT_GT(dataset.manifest().vocab_size, 1024);
  const CorpusEntropy entropy = corpus_entropy(dataset);

  std::vector<int32_t> train(dataset.tokens(Part::kTrain)), validation(dataset.tokens(Part::kValidation));
  dataset.read(Part::kTrain, 0, train);
  dataset.read(Part::kValidation, 0, validation);
  std::map<int32_t, std::map<int32_t, double>> pairs;
  std::map<int32_t, double> count;
  for (size_t i = 0; i < train.size(); ++i) {
    count[train[i]] += 1;
    if (i + 1 < train.size()) pairs[train[i]][train[i + 1]] += 1;
  }
  double sum = 0;
  for (size_t i = 0; i + 1 < validation.size(); ++i) {
    auto& after = pairs[validation[i]];
    double total = 0;
    for (const auto& [b, c] : after) total += c;
    const double q = (count[validation[i + 1]] + 1) / static_cast<double>(train.size() + dataset.manifest().vocab_size);
    const auto n = static_cast<double>(after.size());
    const auto found = after.find(validation[i + 1]);
    const double c = found == after.end() ? 0 : found->second;
    sum -= std::log(n == 0 ? q : (c + n * q) / (total + n));
  }
  EXPECT_NEAR(entropy.bigram, sum / static_cast<double>(validation.size() - 1), 1e-9);
}

TEST(CorpusEntropy, NeedsAValidationPart) {
  testing::ScratchDir dir;
  write_dataset(dir.file("d"), {.train = {1, 2, 3}, .validation = {}, .shard_tokens = {}});
  TokenDataset dataset(dir.file("d"));
  EXPECT_THROW(corpus_entropy(dataset), Error);
}

}  // namespace
}  // namespace ashlar::data
