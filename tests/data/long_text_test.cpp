// Long texts are encoded in pieces by many threads, and give the ids of the whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/read/token_dataset.h"
#include "data/sources/text_splitter.h"
#include "data/tokenizer/forms.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<fs::path> tokenizers() {
  const fs::path fixtures = fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures";
  std::vector<fs::path> all = {fixtures / "tokenizers-gpt2", fixtures / "tokenizers-tiktoken"};
  for (const auto& entry : fs::recursive_directory_iterator(fixtures)) {
    const bool json = entry.path().parent_path() == fixtures / "tokenizers" && entry.path().extension() == ".json";
    if (json || entry.path().extension() == ".model") all.push_back(entry.path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Words of several scripts with all that patterns look at: digits, marks, runs of spaces, added tokens.
std::string prose(size_t bytes, uint64_t seed) {
  const std::vector<std::string> words = {"the",
                                          "quick",
                                          "don't",
                                          "I'LL",
                                          "3.14159",
                                          "2026",
                                          "na\u00efve",
                                          "e\u0301t\u00e9",
                                          "\u4e2d\u6587\u3002",
                                          "x=y;",
                                          "<|endoftext|>",
                                          "</s>",
                                          "\U0001F600",
                                          "--",
                                          "a_b",
                                          "CamelCase",
                                          "\u0915\u094d\u0937",
                                          "\uff0c"};
  const std::vector<std::string> spaces = {" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "", " \n ", "   "};
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < bytes) text += words[random() % words.size()] + spaces[random() % spaces.size()];
  return text;
}

Ids ids_of(const std::string& directory) {
  TokenDataset dataset(directory);
  Ids ids(static_cast<size_t>(dataset.tokens(Part::kTrain)));
  dataset.read(Part::kTrain, 0, ids);
  return ids;
}

BuildOptions options(const std::string& input, const std::string& out, const std::string& tokenizer) {
  BuildOptions o;
  o.inputs = {input};
  o.out = out;
  o.tokenizer = tokenizer;
  o.validation = 0;
  o.threads = 2;
  o.block_bytes = 1500;
  return o;
}

TEST(LongText, HasTheIdsOfTheWholeForEveryTokenizer) {
  const testing::ScratchDir dir;
  const std::string text = prose(9'000, 1);
  write_all(dir.file("a.txt"), text);
  int divided = 0, sets = 0;
  for (const fs::path& path : tokenizers()) {
    SCOPED_TRACE(path.string());
    const auto tokenizer = open_tokenizer(path);
    if (!tokenizer->eos_id()) continue;
    divided += tokenizer->split_points() == SplitPoints::kWords ? 1 : 0;
    Ids expected;
    std::vector<SpecialSpelling> found;
    tokenizer->encode_as_text(text, expected, found);
    expected.push_back(tokenizer->eod_id());
    const BuildOptions o = options(dir.file("a.txt"), dir.file(str_cat("set", sets++)), path);
    const Manifest m = build_dataset(o).manifest;
    EXPECT_EQ(m.special_tokens, "text");
    EXPECT_EQ(m.special_spellings, static_cast<int64_t>(found.size()));
    EXPECT_EQ(m.part(Part::kTrain).documents, 1);
    EXPECT_TRUE(ids_of(o.out) == expected);
  }
  EXPECT_GE(divided, 8) << "of " << sets;
}

TEST(LongText, TokenizersThatCutWordsAreDivided) {
  const fs::path fixtures = fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures";
  for (const char* name : {"tokenizers-gpt2", "tokenizers-tiktoken"})
    EXPECT_EQ(open_tokenizer(fixtures / name)->split_points(), SplitPoints::kWords) << name;
}

class SpecialTokens : public ::testing::Test {
 protected:
  BuildOptions with(SpecialPolicy policy, const std::string& out) {
    write_all(dir_.file("a.jsonl"), "{\"text\":\"one<|endoftext|>two\"}\n{\"text\":\"three<|endoftext|>\"}\n");
    BuildOptions o = options(dir_.file("a.jsonl"), dir_.file(out),
                             (fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures/tokenizers-gpt2").string());
    o.special_tokens = policy;
    return o;
  }
  testing::ScratchDir dir_;
};

TEST_F(SpecialTokens, DocumentsAreAsManyAsTheirEnds) {
  const auto tokenizer = open_tokenizer((fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures/tokenizers-gpt2").string());
  const int32_t eod = tokenizer->eod_id();
  const Manifest text = build_dataset(with(SpecialPolicy::kText, "text")).manifest;
  const Ids as_text = ids_of(dir_.file("text"));
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), eod), 2);
  EXPECT_EQ(text.part(Part::kTrain).documents, 2);
  EXPECT_EQ(text.special_spellings, 2);
  const Manifest parsed = build_dataset(with(SpecialPolicy::kParse, "parse")).manifest;
  Ids expected;
  for (const char* document : {"one", "two", "three"}) {
    for (const int32_t id : tokenizer->encode(document)) expected.push_back(id);
    expected.push_back(eod);
  }
  EXPECT_EQ(ids_of(dir_.file("parse")), expected);
  EXPECT_EQ(parsed.part(Part::kTrain).documents, 3);
  EXPECT_EQ(parsed.special_tokens, "parse");
  try {
    build_dataset(with(SpecialPolicy::kRefuse, "refuse"));
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_THAT(e.what(), HasSubstr("a.jsonl, line 1"));
    EXPECT_THAT(e.what(), HasSubstr("<|endoftext|>"));
  }
  EXPECT_FALSE(fs::exists(dir_.file("refuse")));
}

/// Far from any white space a text is cut between other characters that the tokenizer parts.
TEST(LongText, IsCutBetweenCharactersWhereNoSpaceIs) {
  const testing::ScratchDir dir;
  std::mt19937_64 random(5);
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int i = 0; i < 400'000; ++i)
    text += i > 200'000 && i % 3 == 0 ? "\u4e2d" : std::string(1, letters[random() % 64]);
  write_all(dir.file("a.txt"), text);
  for (const char* name : {"tokenizers-gpt2", "tokenizers-tiktoken"}) {
    SCOPED_TRACE(name);
    const std::string path = fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures" / name;
    const auto tokenizer = open_tokenizer(path);
    const TextSplitter splitter(tokenizer->split_points(), tokenizer.get(), {});
    for (const size_t first : {size_t{600}, size_t{220'000}}) {
      size_t before = 0;
      for (size_t begin = first; begin < first + 1'500; begin += 37) {
        size_t from = begin;
        const auto split = splitter.find(text, from, true, {begin, 0});
        ASSERT_TRUE(split);
        EXPECT_GE(split->at, before) << "of a search that began later";
        EXPECT_LT(split->at, begin + 80'000);
        before = split->at;
      }
    }
    Ids expected;
    std::vector<SpecialSpelling> found;
    tokenizer->encode_as_text(text, expected, found);
    expected.push_back(tokenizer->eod_id());
    BuildOptions o = options(dir.file("a.txt"), dir.file(name), path);
    o.block_bytes = 50'000;
    build_dataset(o);
    EXPECT_TRUE(ids_of(o.out) == expected);
  }
}

/// Documents of many times what is held of one are written in pieces, on either side of a split.
TEST(LongText, IsWrittenInPieces) {
  const testing::ScratchDir dir;
  const std::vector<std::string> documents = {"first", std::string(9'500'000, 'a'), "second",
                                              std::string(2'600'000, 'b')};
  std::string lines;
  Ids expected;
  for (const std::string& text : documents) {
    lines += "{\"text\":\"" + text + "\"}\n";
    expected.insert(expected.end(), text.begin(), text.end());
    expected.push_back(256);
  }
  write_all(dir.file("a.jsonl"), lines);
  for (const double validation : {0.1, 0.4}) {
    SCOPED_TRACE(validation);
    BuildOptions o = options(dir.file("a.jsonl"), dir.file(str_cat("set", validation)), "bytes");
    o.block_bytes = 2 << 20;
    o.validation = validation;
    build_dataset(o);
    TokenDataset dataset(o.out);
    Ids ids;
    std::vector<int64_t> documents_begin;
    for (const Part part : kParts) {
      const auto first = static_cast<int64_t>(ids.size());
      ids.resize(ids.size() + static_cast<size_t>(dataset.tokens(part)));
      dataset.read(part, 0, std::span(ids).subspan(static_cast<size_t>(first)));
    }
    EXPECT_TRUE(ids == expected);
    if (validation == 0.4) {
      // The cut is in the second document: two begin behind it, and the rest of that one.
      EXPECT_EQ(dataset.manifest().part(Part::kTrain).documents, 2);
      EXPECT_EQ(dataset.manifest().part(Part::kValidation).documents, 3);
    }
  }
}

/// The growth of the peak of this process' memory, in MB, while `work` is done.
template <typename Work>
int64_t peak_of(const Work& work) {
  const auto status = [](std::string_view key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(key)) return std::stoll(line.substr(key.size() + 1)) / 1024;
    return 0LL;
  };
  std::ofstream("/proc/self/clear_refs") << "5";
  const int64_t before = status("VmHWM");
  work();
  return status("VmHWM") - before;
}

/// A line of JSON costs its own length once (it cost nine times that with a token for each byte).
TEST(LongText, InOneLineIsHeldOnce) {
  if (testing::under_address_sanitizer()) GTEST_SKIP() << "which keeps what is freed";
  const testing::ScratchDir dir;
  const std::string object = "{\"text\":\"" + std::string(size_t{24} << 20, 'a') + " \\n\"}";
  write_all(dir.file("a.jsonl"), object + "\n");
  write_all(dir.file("a.json"), "[" + object + "]");
  for (const char* name : {"a.jsonl", "a.json"}) {
    BuildOptions o = options(dir.file(name), dir.file(str_cat("set-", name)), "bytes");
    o.block_bytes = 2 << 20;
    EXPECT_LT(peak_of([&] { build_dataset(o); }), 80) << name;
  }
}

/// What no place cuts is bounded.
TEST(LongText, WithoutAPlaceToCutIsRefusedByName) {
  const testing::ScratchDir dir;
  std::string text(size_t{34} << 20, 'a');
  text += " b";
  write_all(dir.file("a.txt"), text);
  BuildOptions o = options(dir.file("a.txt"), dir.file("set"),
                           (fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures/tokenizers-gpt2").string());
  o.block_bytes = int64_t{2} << 20;
  EXPECT_THAT(build_error(o), HasSubstr("no place where this tokenizer may split text"));
  // The same in a line of JSON, for which --bad-lines has no cure.
  write_all(dir.file("a.jsonl"), "{\"text\":\"" + text + "\"}\n");
  o.inputs = {dir.file("a.jsonl")};
  o.tokenizer = fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures/sentencepiece_bpe_identity/model.model";
  EXPECT_THAT(build_error(o), ::testing::AllOf(HasSubstr("no place where this tokenizer may split text"),
                                               ::testing::Not(HasSubstr("--bad-lines"))));
}

}  // namespace
}  // namespace ashlar::data
