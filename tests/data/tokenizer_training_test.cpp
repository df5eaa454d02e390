#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "data/build/train_tokenizer.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/forms.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/input_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> merges_of(const TrainedBpe& trained) {
  std::vector<std::string> merges;
  for (const auto& [left, right] : trained.merges) merges.push_back(trained.tokens[left] + "+" + trained.tokens[right]);
  return merges;
}

/// By hand: "aab" 5 times, "ab" 4 times, "b b" twice. (a,b) 9, (a,a) 5, then (a,ab) 5; of equals the lower ids first.
TEST(BpeTrainer, JoinsTheMostFrequentPairFirst) {
  const std::vector<WordCount> words = {{"aab", 5}, {"ab", 4}, {"bcb", 2}};
  const auto train = [&](int64_t vocab, int64_t least) {
    return merges_of(train_bpe(words, {.vocab_size = vocab, .min_frequency = least, .special_tokens = {"<e>"}}));
  };
  EXPECT_THAT(train(257 + 10, 2), ElementsAre("a+b", "a+ab", "b+c", "bc+b"));
  EXPECT_THAT(train(257 + 10, 3), ElementsAre("a+b", "a+ab"));
  EXPECT_THAT(train(257 + 1, 2), ElementsAre("a+b"));
  EXPECT_THROW(train(256, 2), Error);
}

/// Counts every pair anew before each merge: slow and plain.
std::vector<std::string> merges_by_counting(std::vector<WordCount> words, size_t merges) {
  std::vector<std::pair<std::vector<std::string>, int64_t>> split;
  for (const WordCount& word : words) {
    split.emplace_back();
    for (const char c : word.word) split.back().first.emplace_back(1, c);
    split.back().second = word.count;
  }
  std::vector<std::string> made, order;  // of tokens by id, for ties
  for (int c = 33; c < 127; ++c) order.emplace_back(1, static_cast<char>(c));
  const auto id = [&](const std::string& token) {
    return std::find(order.begin(), order.end(), token) - order.begin();
  };
  while (made.size() < merges) {
    std::map<std::pair<std::string, std::string>, int64_t> counts;
    for (const auto& [symbols, count] : split)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) counts[{symbols[i], symbols[i + 1]}] += count;
    std::pair<std::string, std::string> best;
    int64_t most = 0;
    for (const auto& [pair, count] : counts) {
      const auto ids = std::pair(id(pair.first), id(pair.second));
      if (count > most || (count == most && ids < std::pair(id(best.first), id(best.second)))) {
        best = pair;
        most = count;
      }
    }
    if (most < 1) break;
    made.push_back(best.first + "+" + best.second);
    if (id(best.first + best.second) == static_cast<int64_t>(order.size())) order.push_back(best.first + best.second);
    for (auto& [symbols, count] : split) {
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != best.first || symbols[i + 1] != best.second) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<int64_t>(i) + 1);
      }
    }
  }
  return made;
}

TEST(BpeTrainer, DoesAsCountingAnewDoes) {
  std::mt19937_64 random(1);
  std::map<std::string, int64_t> words;
  while (words.size() < 120) {
    std::string word;
    for (uint64_t n = random() % 7 + 1; n > 0; --n) word += static_cast<char>('a' + random() % 9);
    words[word] = static_cast<int64_t>(random() % 50) + 1;
  }
  std::vector<WordCount> list;
  for (const auto& [word, count] : words) list.push_back({word, count});
  const auto expected = merges_by_counting(list, 90);
  const TrainedBpe trained = train_bpe(list, {.vocab_size = 257 + 90, .min_frequency = 1, .special_tokens = {"<e>"}});
  const auto merges = merges_of(trained);
  ASSERT_GE(merges.size(), 90U);
  EXPECT_EQ(std::vector(merges.begin(), merges.begin() + 90), expected);
}

class TokenizerTrainings : public ::testing::Test {
 protected:
  TokenizerTraining training(const std::string& out) {
    TokenizerTraining t;
    t.inputs = {dir_.file("in")};
    t.out = dir_.file(out);
    t.vocab_size = 600;
    t.threads = 2;
    t.block_bytes = 5000;
    return t;
  }
  void SetUp() override {
    fs::create_directories(dir_.file("in"));
    std::string lines;
    for (const char* name :
         {"shards/manifest.cpp", "read/sampler.cpp", "build/build_plan.cpp", "sources/json_line.cpp", "README.md"}) {
      const std::string text = read_all(str_cat(ASHLAR_SOURCE_DIR, "/data/", name));
      write_all(dir_.file(str_cat("in/", fs::path(name).filename().string(), ".gz")), gzipped(text));
      text_ += text;
    }
  }
  testing::ScratchDir dir_;
  std::string text_;
};

TEST_F(TokenizerTrainings, AreTheSameOnAnyThreadsAndReadBack) {
  std::map<std::string, std::string> first;
  for (const auto& [threads, block] : {std::pair{1, 1 << 21}, std::pair{3, 1 << 21}, std::pair{2, 5000}}) {
    TokenizerTraining t = training(str_cat("t", threads, "-", block));
    t.threads = threads;
    t.block_bytes = block;
    const TrainedTokenizer trained = train_tokenizer(t);
    EXPECT_EQ(trained.vocab_size, 600);
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(t.out)) files[entry.path().filename()] = read_all(entry.path());
    EXPECT_EQ(files.size(), 2U);
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << threads << " " << block;
  }
  const auto tokenizer = open_tokenizer(dir_.file("t3-2097152"));
  EXPECT_EQ(tokenizer->vocab_size(), 600);
  EXPECT_EQ(tokenizer->eod_id(), 0);
  const std::vector<int32_t> ids = tokenizer->encode(text_);
  EXPECT_EQ(tokenizer->decode(ids), text_);
  EXPECT_LT(ids.size(), text_.size() / 2) << "it has learnt words";
}

TEST_F(TokenizerTrainings, OfSentencePieceGoThroughItsLibrary) {
  for (const TokenizerKind kind : {TokenizerKind::kSentencePieceBpe, TokenizerKind::kSentencePieceUnigram}) {
    std::string first;
    for (const int threads : {1, 3}) {
      TokenizerTraining t = training(str_cat("sp", static_cast<int>(kind), threads));
      t.kind = kind;
      t.threads = threads;
      t.vocab_size = 500;
      EXPECT_EQ(train_tokenizer(t).vocab_size, 500);
      const std::string model = read_all(t.out + "/tokenizer.model");
      if (first.empty()) first = model;
      EXPECT_EQ(model == first, true) << threads;
      const auto tokenizer = open_tokenizer(t.out);
      const std::string text = "void f(int  x) {\n  return;\n}\n";
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

TEST_F(TokenizerTrainings, ThatCannotBeAreOneLine) {
  const auto error_of = [&](const TokenizerTraining& t) -> std::string {
    try {
      train_tokenizer(t);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInput);
      EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
      EXPECT_FALSE(fs::exists(t.out));
      return e.what();
    }
    return "nothing was thrown";
  };
  TokenizerTraining t = training("o");
  t.vocab_size = 200;
  EXPECT_THAT(error_of(t), HasSubstr("no room for 256 bytes"));
  t.kind = TokenizerKind::kSentencePieceUnigram;
  t.vocab_size = 500'000;
  EXPECT_THAT(error_of(t), HasSubstr("Vocabulary size too high"));
  t = training("o");
  t.special_tokens = {"<a>", "<a>"};
  EXPECT_THAT(error_of(t), HasSubstr("--special '<a>' is given twice"));
  t.special_tokens = {"<a>", ""};
  EXPECT_THAT(error_of(t), HasSubstr("--special is empty"));
  write_all(dir_.file("in/bad.txt"), "abc \xff");
  EXPECT_THAT(error_of(training("o")), AllOf(HasSubstr("bad.txt"), HasSubstr("0xff")));
  fs::remove(dir_.file("in/bad.txt"));
  fs::create_directories(dir_.file("there"));
  write_all(dir_.file("there/tokenizer.json"), "mine");
  EXPECT_THROW(train_tokenizer(training("there")), Error);
  EXPECT_EQ(read_all(dir_.file("there/tokenizer.json")), "mine");
}

}  // namespace
}  // namespace ashlar::data
