#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/read/token_dataset.h"
#include "data/tokenizer/forms.h"
#include "data/tokenizer/sentencepiece_json.h"
#include "data/tokenizer/sentencepiece_library.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Models and vectors that the library made (0.2.3), in tests/data/fixtures.
std::string set(const std::string& name) {
  return str_cat(ASHLAR_SOURCE_DIR, "/tests/data/fixtures/sentencepiece_", name);
}

class SentencePiece : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePiece, GivesTheIdsAndTextsOfItsLibrary) {
  const std::string folder = set(GetParam());
  const auto tokenizer = open_tokenizer(folder);
  std::ifstream file(folder + "/vectors.jsonl");
  int texts = 0;
  for (std::string line; std::getline(file, line); ++texts) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const std::string text = row["text"];
    const Ids expected = row["ids"];
    EXPECT_EQ(tokenizer->encode(text), expected) << text;
    EXPECT_EQ(tokenizer->decode(expected), row["decoded"].get<std::string>()) << text;
  }
  EXPECT_EQ(texts, 243);
}

/// What the library gives, once more from the tokenizer.json that an export writes. A text that spells a control token
/// holds that token there. Rules of normalisation are looked up for
/// a character with its combining marks there, and not for several characters: that shows in texts of such alone.
TEST_P(SentencePiece, GivesTheSameIdsAsTokenizerJson) {
  const std::string folder = set(GetParam());
  const auto written = tokenizer_from_files(
      {.shown = "written", .bytes = {{"tokenizer.json", open_tokenizer(folder)->tokenizer_json_text()}}});
  const bool rules = std::string_view(GetParam()) == "unigram_nmt_nfkc";
  std::ifstream file(folder + "/vectors.jsonl");
  int texts = 0, others = 0;
  for (std::string line; std::getline(file, line); ++texts) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const std::string text = row["text"];
    if (text.find("</s>") != std::string::npos || rules) {
      others += written->encode(text) == row["ids"].get<Ids>() ? 0 : 1;
      continue;
    }
    EXPECT_EQ(written->encode(text), row["ids"].get<Ids>()) << row["text"];
  }
  EXPECT_EQ(texts, 243);
  EXPECT_LE(others, rules ? 17 : 1);
}

/// Where tokenizer.json has no word for a model, it says so.
TEST(SentencePieceFile, ThatIsNoTokenizerJsonSaysWhy) {
  SentencePieceModelFile model = *parse_sentencepiece_model(read_all(set("bpe_identity") + "/model.model"));
  model.space_as_suffix = true;
  EXPECT_THROW(tokenizer_json_of_sentencepiece(model, {}, {}), Error);
  model.space_as_suffix = false;
  model.pieces.back().type = SentencePieceModelFile::Type::kUnused;
  EXPECT_THROW(tokenizer_json_of_sentencepiece(model, {}, {}), Error);
}

/// bos and eos around a text are those that tokenizer_config.json asks for, here and in tokenizer.json.
TEST(SentencePieceFile, HasTheTemplateOfItsConfiguration) {
  for (const auto& [config, around] : std::map<std::string, std::pair<int, int>>{
           {R"({})", {0, 0}},
           {R"({"tokenizer_class": "LlamaTokenizer"})", {1, 0}},
           {R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})", {0, 0}},
           {R"({"add_bos_token": true, "add_eos_token": true})", {1, 1}}}) {
    SCOPED_TRACE(config);
    TokenizerFiles files{.shown = "given", .bytes = {{"tokenizer_config.json", config}}};
    files.bytes["x.model"] = read_all(set("bpe_identity") + "/model.model");
    const auto tokenizer = tokenizer_from_files(files);
    Ids expected(static_cast<size_t>(around.first), 1);
    for (const int32_t id : tokenizer->encode("some text")) expected.push_back(id);
    expected.insert(expected.end(), static_cast<size_t>(around.second), 2);
    Ids ids, again;
    tokenizer->encode_with_template("some text", ids);
    EXPECT_EQ(ids, expected);
    tokenizer_from_files({.shown = "w", .bytes = {{"tokenizer.json", tokenizer->tokenizer_json_text()}}})
        ->encode_with_template("some text", again);
    EXPECT_EQ(again, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, SentencePiece,
                         ::testing::Values("bpe_identity", "unigram_identity", "unigram_nmt_nfkc"));

TEST(SentencePieceFile, IsATokenizerLikeOthers) {
  const auto tokenizer = open_tokenizer(set("bpe_identity") + "/model.model");
  EXPECT_EQ(tokenizer->vocab_size(), 1000);
  EXPECT_EQ(tokenizer->eod_id(), 2);
  EXPECT_EQ(tokenizer->token(2), "</s>");
  EXPECT_EQ(tokenizer->id_of("</s>"), 2);
  EXPECT_EQ(tokenizer->id_of("no such piece at all"), std::nullopt);
  // Special tokens in a text are text.
  EXPECT_THAT(tokenizer->encode("a</s>b"), ::testing::Not(::testing::Contains(2)));
  const auto again = tokenizer_from_json(tokenizer->to_json());
  EXPECT_EQ(again->hash(), tokenizer->hash());
  EXPECT_EQ(again->encode("once more"), tokenizer->encode("once more"));
  EXPECT_THROW(tokenizer->decode(Ids{1000}), Error);
  EXPECT_THROW(tokenizer->encode("a\xff"), TextError);
}

/// A text over a megabyte is encoded in pieces, with the same ids.
TEST(SentencePieceFile, EncodesLongTextsInPieces) {
  const auto tokenizer = open_tokenizer(set("bpe_identity"));
  std::string text;
  for (int i = 0; text.size() < 2'500'000; ++i)
    text += str_cat("the word number ", i, i % 11 == 0 ? "\n" : "  ", "of it ");
  SentencePieceLibrary library;
  ASSERT_EQ(library.load(read_all(set("bpe_identity") + "/model.model")), "");
  Ids whole;
  ASSERT_EQ(library.encode(text, whole), "");
  EXPECT_EQ(tokenizer->encode(text), whole);
}

TEST(SentencePieceFile, ThatIsNoneIsOneLine) {
  const testing::ScratchDir dir;
  const std::string model = read_all(set("bpe_identity") + "/model.model");
  const auto error_of = [&](const std::string& bytes) -> std::string {
    write_all(dir.file("x.model"), bytes);
    try {
      open_tokenizer(dir.file("x.model"));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInput);
      EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(error_of(model.substr(0, model.size() / 2)), AllOf(HasSubstr("x.model"), HasSubstr("SentencePiece")));
  EXPECT_THAT(error_of("\nno protocol buffer"), AllOf(HasSubstr("x.model"), HasSubstr("SentencePiece")));
}

TEST(SentencePieceFile, BuildsADataset) {
  const testing::ScratchDir dir;
  write_all(dir.file("a.jsonl"), "{\"text\": \"the first\"}\n{\"text\": \"and another one\"}\n");
  BuildOptions o;
  o.inputs = {dir.file("a.jsonl")};
  o.out = dir.file("set");
  o.tokenizer = set("bpe_identity");
  o.validation = 0;
  build_dataset(o);
  TokenDataset dataset(o.out);
  Ids expected = dataset.tokenizer().encode("the first");
  expected.push_back(2);
  for (const int32_t id : dataset.tokenizer().encode("and another one")) expected.push_back(id);
  expected.push_back(2);
  Ids ids(static_cast<size_t>(dataset.tokens(Part::kTrain)));
  dataset.read(Part::kTrain, 0, ids);
  EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace ashlar::data
