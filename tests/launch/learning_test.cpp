// A model learns: what repeats is memorised, and Shakespeare reaches the loss of a public reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;

double last_validation_loss(const RunFixture& run, const std::string& dir) {
  double loss = NAN;
  std::istringstream rows(run.read(dir + "/metrics.jsonl"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.contains("val_loss")) loss = row.at("val_loss");
  }
  return loss;
}

// Nats of a letter given the one before it: the best that a model without a longer memory can do on `text`.
double bigram_entropy(const std::string& text) {
  std::map<char, double> single;
  std::map<std::pair<char, char>, double> pairs;
  for (size_t i = 1; i < text.size(); ++i) {
    single[text[i - 1]] += 1;
    pairs[{text[i - 1], text[i]}] += 1;
  }
  double entropy = 0;
  for (const auto& [pair, n] : pairs) entropy -= n * std::log(n / single[pair.first]);
  return entropy / static_cast<double>(text.size() - 1);
}

TEST(Learning, SlowWhatRepeatsIsMemorised) {
  const RunFixture run;
  // 80 letters drawn from six, again and again: a pair of letters tells little, the whole context all.
  std::string verse, text;
  for (uint64_t i = 0; i < 80; ++i) verse += static_cast<char>('a' + Philox::block(23, 0, i)[0] % 6);
  for (int i = 0; i < 500; ++i) text += verse;
  const double bound = 0.25 * bigram_entropy(text);
  ASSERT_GT(bound, 0.3);
  run.write("verse.txt", text);
  ASSERT_EQ(run.ashlar("data build verse.txt --out verse").code, 0);
  const ShellResult r = run.ashlar(
      "train tiny.toml data.path=verse run.dir=verse-run model.d_model=48 model.n_heads=4 model.d_ff=96 "
      "dropout.resid=0 dropout.attn=0 train.sequence_length=64 train.global_batch=8 train.micro_batch=8 "
      "train.steps=250 train.eval_every=0 train.eval_sequences=80 checkpoint.every=0 log.every=50");
  ASSERT_EQ(r.code, 0) << r.err;
  const double loss = last_validation_loss(run, "verse-run");
  std::cout << "val_loss " << loss << ", a quarter of the bigram entropy " << bound << "\n";
  EXPECT_LT(loss, bound);
}

// Nats of a letter of `text`, in the frequencies of `from`, given the `order` letters before it. Orders above the seen
// contexts lean on the order below (Witten and Bell 1991); letters lean on the uniform distribution.
class LetterModel {
 public:
  LetterModel(const std::string& from, size_t order) : order_(order), counts_(order + 1) {
    for (const char c : from) letters_.insert(c);
    for (size_t n = 0; n <= order; ++n)
      for (size_t i = n; i < from.size(); ++i) ++counts_[n][from.substr(i - n, n)][from[i]];
  }
  double cross_entropy(const std::string& text) const {
    double sum = 0;
    for (size_t i = order_; i < text.size(); ++i) sum -= std::log(probability(text, i));
    return sum / static_cast<double>(text.size() - order_);
  }

 private:
  double probability(const std::string& text, size_t i) const {
    double p = 1.0 / static_cast<double>(letters_.size());
    for (size_t n = 0; n <= order_; ++n) {
      const auto found = counts_[n].find(text.substr(i - n, n));
      if (found == counts_[n].end()) break;
      double total = 0, kinds = 0, own = 0;
      for (const auto& [letter, count] : found->second) {
        total += count, kinds += 1;
        if (letter == text[i]) own = count;
      }
      p = (own + kinds * p) / (total + kinds);
    }
    return p;
  }

  size_t order_;
  std::set<char> letters_;
  std::vector<std::map<std::string, std::map<char, double>>> counts_;
};

class Shakespeare : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("ASHLAR_SHAKESPEARE");
    const fs::path path = named != nullptr ? named : ASHLAR_SOURCE_DIR "/../shared/data/tinyshakespeare.txt";
    if (!fs::exists(path)) GTEST_SKIP() << "no tinyshakespeare.txt; name it in ASHLAR_SHAKESPEARE";
    std::ifstream in(path, std::ios::binary);
    text_.assign(std::istreambuf_iterator<char>(in), {});
    ASSERT_EQ(run_.ashlar("data build " + shell_quote(path.string()) + " --out play --tokenizer characters").code, 0);
  }

  /// Nats a letter of the validation part by the counts of the other part: the last tenth of the text is validated on.
  double by_counts(size_t order) const {
    const auto cut = static_cast<size_t>(std::floor(static_cast<double>(text_.size()) * (1 - 0.1)));
    return LetterModel(text_.substr(0, cut), order).cross_entropy(text_.substr(cut));
  }

  // Mean loss of the seeds 1.. over the whole validation split, after training with these overrides.
  double mean_loss(int seeds, const std::string& name, const std::string& overrides) {
    double sum = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
      const std::string dir = str_cat(name, "-", seed);
      const ShellResult r = run_.ashlar(str_cat(
          "train ", shell_quote(ASHLAR_SOURCE_DIR "/configs/shakespeare-char.toml"), " data.path=play run.seed=", seed,
          " run.dir=", dir, " train.eval_every=0 train.eval_sequences=0 checkpoint.every=0 log.every=100 ", overrides));
      EXPECT_EQ(r.code, 0) << r.err;
      const double loss = last_validation_loss(run_, dir);
      std::cout << name << ", seed " << seed << ": val_loss " << loss << "\n";
      sum += loss;
    }
    return sum / seeds;
  }

  std::string text_;

 private:
  RunFixture run_;
};

// nanoGPT's example for CPUs. In full it reached 1.911 (mean of 3 seeds over the whole validation split), and the
// parallel block learns as well as the serial one. The short form takes half the layers and a higher rate. A model that
// sees no more than the letter before it, because attention or positions are broken, is no better than pairs of letters
// (2.48) however long it learns; one that is better than triples (2.06) after so few steps sees what it should predict.
TEST_F(Shakespeare, SlowByCharactersWithBothBlocks) {
  const bool in_full = long_form();
  const int seeds = in_full ? 3 : 1;
  const double letters = by_counts(0), pairs = by_counts(1), triples = by_counts(2);
  std::cout << "by the counts of letters " << letters << ", pairs " << pairs << ", triples " << triples << "\n";
  ASSERT_LT(triples + 0.3, pairs);
  ASSERT_LT(pairs + 0.5, letters);
  // The short form takes one thread: two wait for each other at every product when others use the cores.
  const std::string length = in_full ? ""
                                     : "model.n_layers=2 optimizer.lr=5e-3 train.steps=300 schedule.warmup_steps=20 "
                                       "run.threads=1";
  const double serial = mean_loss(seeds, "serial", length);
  const double parallel = mean_loss(seeds, "parallel", length + " block.topology=parallel");
  std::cout << "mean val_loss: serial " << serial << ", parallel " << parallel << "\n";
  for (const double loss : {serial, parallel}) {
    EXPECT_LE(loss, in_full ? 1.95 : pairs - 0.05);
    EXPECT_GT(loss, in_full ? 1.4 : triples) << "below what this model can reach: the validation part leaks";
  }
  EXPECT_LE(serial, in_full ? 1.92 : pairs - 0.05);
  EXPECT_NEAR(parallel, serial, in_full ? 0.03 : 0.1);
}

}  // namespace
}  // namespace ashlar::testing
