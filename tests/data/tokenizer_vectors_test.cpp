#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "data/tokenizer/forms.h"
#include "tests/data/tokenizer_fixture.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A tokenizer, and texts with the ids that the Hugging Face library (0.23.3) or tiktoken (0.14.0) gave.
struct Vectors {
  fs::path tokenizer, rows;
};

/// The folders of DIR/tokenizers with ASHLAR_GOLDEN=DIR; otherwise those of the tree (every fourth text of eleven).
std::vector<Vectors> all_vectors() {
  std::vector<Vectors> all;
  const char* const golden = std::getenv("ASHLAR_GOLDEN");
  if (golden != nullptr && fs::is_directory(fs::path(golden) / "tokenizers")) {
    for (const auto& entry : fs::directory_iterator(fs::path(golden) / "tokenizers")) {
      for (const char* name : {"tokenizer.json", "vocab.json", "ranks.tiktoken", "model.model"}) {
        if (fs::exists(entry.path() / name)) all.push_back({entry.path() / name, entry.path() / "vectors.jsonl"});
      }
    }
    return all;
  }
  for (const auto& entry : fs::directory_iterator(fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures/tokenizers")) {
    if (entry.path().extension() != ".json") continue;
    all.push_back({entry.path(), fs::path(entry.path()).replace_extension(".jsonl")});
  }
  const fs::path folders = fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures";
  all.push_back({folders / "tokenizers-gpt2", folders / "tokenizers-gpt2/vectors.jsonl"});
  all.push_back({folders / "tokenizers-tiktoken", folders / "tokenizers-tiktoken/vectors.jsonl"});
  return all;
}

std::vector<json> rows_of(const fs::path& file) {
  std::vector<json> rows;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) rows.push_back(json::parse(line));
  return rows;
}

void expect_rows(const FormTokenizer& tokenizer, const fs::path& file) {
  int shown = 0;
  const std::vector<json> rows = rows_of(file);
  ASSERT_GT(rows.size(), 40U);
  for (const json& row : rows) {
    if (shown >= 5) break;
    const std::string text = row.at("text");
    const Ids ids = tokenizer.encode(text), expected = row.at("ids").get<Ids>();
    EXPECT_EQ(ids, expected) << file << ": " << row.at("text") << ++shown;
    EXPECT_EQ(tokenizer.decode(expected), row.at("decoded").get<std::string>())
        << file << ": " << row.at("text") << ++shown;
    if (!row.contains("ids_template")) continue;
    Ids around;
    tokenizer.encode_with_template(text, around);
    EXPECT_EQ(around, row["ids_template"].get<Ids>()) << file << ": " << row.at("text") << ++shown;
  }
}

TEST(TokenizerVectors, EveryIdIsThatOfTheReferenceLibrary) {
  const std::vector<Vectors> all = all_vectors();
  EXPECT_GE(all.size(), 13U);
  for (const Vectors& v : all) {
    const auto tokenizer = open_tokenizer(v.tokenizer);
    expect_rows(*tokenizer, v.rows);
    // And as the tokenizer.json that other programs read; where it differs from SentencePiece's own, sentencepiece_test
    // has what is known of it.
    if (v.tokenizer.extension() == ".model") continue;
    TokenizerFiles written{.shown = "written", .bytes = {{"tokenizer.json", tokenizer->tokenizer_json_text()}}};
    if (tokenizer->form() != "tokenizer.json") expect_rows(*tokenizer_from_files(std::move(written)), v.rows);
  }
}

/// Ranks take any bytes: what is no UTF-8 comes back as it was.
TEST(TokenizerVectors, TiktokenGivesEveryByteBack) {
  const fs::path folder = fs::path(ASHLAR_SOURCE_DIR) / "tests/data/fixtures/tokenizers-tiktoken";
  const auto tokenizer = open_tokenizer(folder);
  const std::vector<json> rows = rows_of(folder / "vectors_bytes.jsonl");
  ASSERT_GT(rows.size(), 20U);
  for (const json& row : rows) {
    std::string bytes;
    ASSERT_TRUE(absl::Base64Unescape(row.at("bytes").get<std::string>(), &bytes));
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes) << row;
  }
}

}  // namespace
}  // namespace ashlar::data
