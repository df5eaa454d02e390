#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/read/token_dataset.h"
#include "data/sources/datatrove_tokens.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/input_fixture.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatatroveInput : public ::testing::Test {
 protected:
  /// A build with the tokenizer of the fixtures, below a folder of the name that they give it.
  BuildOptions options(const std::vector<std::string>& inputs, const std::string& out = "o") {
    const std::string tokenizer = dir_.file("pythia_neox/tokenizer.json");
    fs::create_directories(dir_.file("pythia_neox"));
    fs::copy(kFixtures / "tokenizers/pythia_neox.json", tokenizer, fs::copy_options::overwrite_existing);
    BuildOptions o;
    o.inputs = inputs;
    o.out = dir_.file(out);
    o.tokenizer = tokenizer;
    o.threads = 3;
    o.block_bytes = 101;
    o.validation = 0;
    o.note = [this](const std::string& text) { notes_.push_back(text); };
    return o;
  }
  /// A copy of a folder of fixtures.
  std::string copied(const std::string& name) {
    const std::string to = dir_.file(name);
    fs::copy(kFixtures / "datatrove" / name, to, fs::copy_options::recursive);
    return to;
  }
  std::string error_of(const BuildOptions& o) {
    const std::string text = build_error(o);
    EXPECT_FALSE(fs::exists(o.out)) << text;
    return text;
  }
  /// The documents of a built dataset.
  static std::vector<std::vector<int32_t>> documents_of(const std::string& directory) {
    TokenDataset dataset(directory);
    std::vector<int32_t> ids(static_cast<size_t>(dataset.tokens(Part::kTrain)));
    dataset.read(Part::kTrain, 0, ids);
    std::vector<int64_t> starts = document_starts(dataset, Part::kTrain, 0);
    starts.push_back(static_cast<int64_t>(ids.size()));
    std::vector<std::vector<int32_t>> documents;
    for (size_t i = 0; i + 1 < starts.size(); ++i)
      documents.emplace_back(ids.begin() + starts[i], ids.begin() + starts[i + 1]);
    return documents;
  }

  testing::ScratchDir dir_;
  std::vector<std::string> notes_;
};

TEST_F(DatatroveInput, HasTheDocumentsOfItsIndex) {
  const auto expected = nlohmann::json::parse(read_all((kFixtures / "datatrove/documents.json").string()));
  for (const std::string name : {"plain", "merged"}) {
    const BuildOptions o = options({copied(name)}, name + "-set");
    build_dataset(o);
    EXPECT_EQ(documents_of(o.out), (expected.at(name).get<std::vector<std::vector<int32_t>>>())) << name;
  }
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("plain.ds.loss is not used")));
  // One file, by any of its names.
  for (const char* end : {"", ".index", ".metadata"}) {
    const BuildOptions o = options({dir_.file(str_cat("plain/plain.ds", end))}, str_cat("one", end));
    EXPECT_EQ(build_dataset(o).manifest.part(Part::kTrain).tokens, 538);
  }
}

/// As datatrove reads it: borders are where the index says, whether or not an end-of-document id stands before them.
TEST_F(DatatroveInput, HasBordersWithoutEndOfDocumentIds) {
  put_file(dir_, "x.ds", stored(std::vector<uint16_t>{5, 6, 0, 7, 8, 9}));
  put_file(dir_, "x.ds.index", stored(std::vector<uint64_t>{2, 2, 5, 6}));
  BuildOptions o = options({dir_.file("x.ds")});
  build_dataset(o);
  EXPECT_THAT(documents_of(o.out), ElementsAre(ElementsAre(5, 6), ElementsAre(0, 7, 8), ElementsAre(9)));
  // Without an index, as after shuffling by windows, the end-of-document id ends documents.
  fs::remove(dir_.file("x.ds.index"));
  put_file(dir_, "x.ds.metadata", "example/pythia_neox|2\n6\n6.00 T");
  o = options({dir_.file("x.ds")}, "by-id");
  build_dataset(o);
  EXPECT_THAT(documents_of(o.out), ElementsAre(ElementsAre(5, 6, 0), ElementsAre(7, 8, 9)));
}

TEST_F(DatatroveInput, OfWideIdsHasTheirWidth) {
  const std::string path = copied("wide") + "/wide.ds";
  const auto layout = datatrove_tokens(path, 60, "x");
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->type, TokenType::kUint32);
  EXPECT_EQ(layout->tokens, 15);
  EXPECT_EQ(layout->tokenizer, "");
  fs::remove(path + ".metadata");
  EXPECT_EQ(datatrove_tokens(path, 60, "x")->type, TokenType::kUint32);
  EXPECT_THAT(error_of(options({path})), AllOf(HasSubstr("is id 70001"), HasSubstr("datatrove, uint32")));
}

TEST_F(DatatroveInput, HasATokenizerOfAnyName) {
  const std::string path = put_file(dir_, "x.ds", stored(std::vector<uint16_t>{5, 6, 0}));
  put_file(dir_, "x.ds.metadata", "odd|name|2\n3\n3.00 T");
  const auto layout = datatrove_tokens(path, 6, "x");
  ASSERT_TRUE(layout.has_value());
  EXPECT_EQ(layout->tokenizer, "odd|name");
  EXPECT_EQ(layout->type, TokenType::kUint16);
}

TEST_F(DatatroveInput, OfAnotherTokenizerIsRefused) {
  const std::string plain = copied("plain");
  BuildOptions o = options({plain});
  o.tokenizer = "bytes";
  EXPECT_THAT(error_of(o),
              AllOf(HasSubstr("plain.ds has ids of the tokenizer 'example/pythia_neox'"), HasSubstr("bytes")));
  // A name that cannot be compared is told once.
  fs::rename(dir_.file("pythia_neox"), dir_.file("other"));
  o.tokenizer = dir_.file("other/tokenizer.json");
  o.out = dir_.file("noted");
  notes_.clear();
  build_dataset(o);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("plain.ds.loss"), HasSubstr("taken to be --tokenizer ")));
  // A path is opened.
  write_all(plain + "/plain.ds.metadata", (kFixtures / "tokenizers/smollm_digits.json").string() + "|2\n538\n538 T");
  o.out = dir_.file("o");
  EXPECT_THAT(error_of(o), HasSubstr("is another one; give the files of the tokenizer that made the ids"));
  write_all(plain + "/plain.ds.metadata", (kFixtures / "tokenizers/pythia_neox.json").string() + "|2\n538\n538 T");
  build_dataset(o);
}

TEST_F(DatatroveInput, ThatDoesNotMatchIsOneLine) {
  const std::string folder = copied("plain"), ids = folder + "/plain.ds";
  const std::string good = read_all(ids), index = read_all(ids + ".index");
  write_all(ids, good.substr(0, good.size() - 2));
  EXPECT_THAT(error_of(options({folder})),
              AllOf(HasSubstr("plain.ds is truncated"), HasSubstr("says 538 ids, the file has 537")));
  write_all(ids, "");
  EXPECT_THAT(error_of(options({folder})), HasSubstr("the file has 0"));
  write_all(ids, good.substr(0, good.size() - 1));
  EXPECT_THAT(error_of(options({folder})), HasSubstr("not a multiple of 2"));
  write_all(ids, good);
  write_all(ids + ".index", index.substr(0, index.size() - 8));
  EXPECT_THAT(error_of(options({folder})), AllOf(HasSubstr("does not match"), HasSubstr("plain.ds.index says")));
  write_all(ids + ".index", index.substr(0, index.size() - 3));
  EXPECT_THAT(error_of(options({folder})), HasSubstr("truncated inside a number"));
  write_all(ids + ".index", index.substr(8) + index.substr(0, 8));
  EXPECT_THAT(error_of(options({folder})), HasSubstr("has document 23 out of order"));
  write_all(ids + ".index", index);
  write_all(ids + ".metadata", "name|3\n538\n");
  EXPECT_THAT(error_of(options({folder})), AllOf(HasSubstr("expected datatrove's TOKENIZER|2"), HasSubstr("name|3")));
  write_all(ids + ".metadata", "example/pythia_neox|2\n539\n539 T");
  EXPECT_THAT(error_of(options({folder})), HasSubstr("says 539 ids, the file has 538"));
  for (const char* end : {".index", ".metadata"}) fs::remove(ids + end);
  EXPECT_THAT(error_of(options({ids})), HasSubstr("set --format uint16 or uint32"));
  fs::remove(ids);
  EXPECT_THAT(error_of(options({ids + ".loss"})), HasSubstr("which is missing"));
}

}  // namespace
}  // namespace ashlar::data
