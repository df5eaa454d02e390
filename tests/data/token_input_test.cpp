#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/input_fixture.h"
#include "tests/data/tokenizer_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kEod = 256;  // of the bytes tokenizer

/// Of the bytes vocabulary; a document of about `document` ids each, the last without an end.
Ids some_ids(int64_t n, int64_t document, uint64_t seed) {
  Ids ids = random_tokens(n, document, seed);
  ids.back() = 7;
  return ids;
}

template <typename T>
std::string as(const Ids& ids) {
  return stored(std::vector<T>(ids.begin(), ids.end()));
}

class TokenInput : public ::testing::Test {
 protected:
  BuildOptions options(const std::vector<std::string>& inputs, const std::string& out = "o") {
    BuildOptions o;
    o.inputs = inputs;
    o.out = dir_.file(out);
    o.threads = 3;
    o.block_bytes = 1003;  // no multiple of any type's size
    o.validation = 0;
    return o;
  }
  std::string put(const std::string& name, const std::string& bytes) { return put_file(dir_, name, bytes); }
  std::string error_of(const BuildOptions& o) {
    const std::string text = build_error(o);
    EXPECT_FALSE(fs::exists(o.out)) << text;
    return text;
  }
  Ids ids_of(const std::string& directory, Part part = Part::kTrain) {
    TokenDataset dataset(directory);
    Ids ids(static_cast<size_t>(dataset.tokens(part)));
    dataset.read(part, 0, ids);
    return ids;
  }
  /// The files hold `ids` one behind the other; the dataset holds the same and nothing else, by ids and by digest.
  void expect_ids(const std::vector<std::string>& files, const Ids& ids, const std::vector<int64_t>& starts) {
    BuildOptions o = options(files, str_cat("set", made_++));
    build_dataset(o);
    EXPECT_EQ(ids_of(o.out), ids);
    TokenDataset dataset(o.out);
    EXPECT_EQ(document_starts(dataset, Part::kTrain, 0), starts);
    Digest digest;
    for (size_t at = 0, chunk = 0; at < ids.size(); at += kChunkTokens, ++chunk) {
      const size_t n = std::min<size_t>(kChunkTokens, ids.size() - at);
      digest += chunk_digest(static_cast<int64_t>(chunk), std::span(ids).subspan(at, n));
    }
    EXPECT_EQ(dataset.manifest().part(Part::kTrain).shards[0].digest, digest);
    EXPECT_TRUE(verify_dataset(o.out).damage.empty());
  }

  testing::ScratchDir dir_;
  int made_ = 0;
};

/// Where documents begin: at the start of each file, and behind each end of document.
std::vector<int64_t> starts_of(const std::vector<Ids>& files) {
  std::vector<int64_t> starts;
  int64_t base = 0;
  for (const Ids& ids : files) {
    for (size_t i = 0; i < ids.size(); ++i)
      if (i == 0 || ids[i - 1] == kEod) starts.push_back(base + static_cast<int64_t>(i));
    base += static_cast<int64_t>(ids.size());
  }
  return starts;
}

TEST_F(TokenInput, KeepsEveryIdOfEveryForm) {
  const Ids ids = some_ids(70'000, 300, 1);
  const auto n = static_cast<int>(ids.size());
  const std::vector<int64_t> starts = starts_of({ids});
  const std::string shape = str_cat("(", n, ",)");
  expect_ids({put("nano.bin", as<uint16_t>(ids))}, ids, starts);
  expect_ids({put("gpt2.bin", llmc_file(20240520, 1, n, as<uint16_t>(ids)))}, ids, starts);
  expect_ids({put("llama.bin", llmc_file(20240801, 7, n, as<uint32_t>(ids)))}, ids, starts);
  expect_ids({put("u2.npy", numpy_file("<u2", shape, as<uint16_t>(ids)))}, ids, starts);
  expect_ids({put("i2.npy", numpy_file("<i2", shape, as<int16_t>(ids)))}, ids, starts);
  expect_ids({put("u4.npy", numpy_file("<u4", shape, as<uint32_t>(ids)))}, ids, starts);
  expect_ids({put("i4.npy", numpy_file("<i4", shape, as<int32_t>(ids)))}, ids, starts);
  expect_ids({put("i8.npy", numpy_file("<i8", "(7, 10000)", as<int64_t>(ids)))}, ids, starts);
  expect_ids({put("u8.npy.gz", gzipped(numpy_file("<u8", shape, as<uint64_t>(ids))))}, ids, starts);
  expect_ids({put("nano.bin.zst", zstd_packed(as<uint16_t>(ids)))}, ids, starts);
  // By its bytes, whatever the name.
  expect_ids({put("array", numpy_file("<u2", shape, as<uint16_t>(ids)))}, ids, starts);
  // Several files one behind the other, among them one that ends with an end of document.
  const Ids more = random_tokens(5000, 100, 2);
  Ids both = more;
  both.back() = kEod;
  const Ids first = both;
  both.insert(both.end(), ids.begin(), ids.end());
  expect_ids({put("1/a.npy", numpy_file("<i4", "(5000,)", as<int32_t>(first))), dir_.file("nano.bin")}, both,
             starts_of({first, ids}));
}

TEST_F(TokenInput, OfMegatronHasTheDocumentsOfItsIndex) {
  std::mt19937_64 random(3);
  std::vector<int> sizes;
  std::vector<long> ends;
  std::vector<int64_t> starts = {0};
  int64_t total = 0;
  for (int s = 0; s < 700; ++s) {
    sizes.push_back(static_cast<int>(random() % 200) + (s % 50 == 0 ? 3000 : 0));
    total += sizes.back();
    if (s % 3 != 2 && s != 699) continue;
    ends.push_back(s + 1);
    if (s != 699 && total > starts.back()) starts.push_back(total);
  }
  Ids ids = random_tokens(total, 1'000'000, 4);
  std::replace(ids.begin(), ids.end(), kEod, 1);  // nothing but the index says where documents end
  put("m/corpus_text_document.bin", as<uint16_t>(ids));
  put("m/corpus_text_document.idx", megatron_index(8, 2, sizes, ends));
  for (const char* name : {"m", "m/corpus_text_document.bin", "m/corpus_text_document.idx"})
    expect_ids({dir_.file(name)}, ids, starts);
  put("i/x.bin", as<int32_t>(ids));
  put("i/x.idx", megatron_index(4, 4, sizes, ends) + std::string(700, '\0'));
  expect_ids({dir_.file("i")}, ids, starts);

  put("bad/x.bin", as<uint16_t>(ids).substr(0, 5000));
  put("bad/x.idx", megatron_index(8, 2, sizes, ends));
  EXPECT_THAT(error_of(options({dir_.file("bad")})),
              AllOf(HasSubstr("bad/x.bin is truncated"), HasSubstr("bad/x.idx says")));
  put("bad/x.idx", megatron_index(8, 2, sizes, ends).substr(0, 900));
  EXPECT_THAT(error_of(options({dir_.file("bad")})), HasSubstr("x.idx: Megatron index is truncated"));
  put("bad/x.idx", megatron_index(7, 4, sizes, ends));
  EXPECT_THAT(error_of(options({dir_.file("bad")})), HasSubstr("dtype code 7"));
  put("bad/x.idx", megatron_index(8, 4, sizes, ends));
  EXPECT_THAT(error_of(options({dir_.file("bad")})),
              HasSubstr("sequence 1 that does not begin where the one before it ends"));
  put("alone/x.idx", megatron_index(8, 2, sizes, ends));
  EXPECT_THAT(error_of(options({dir_.file("alone")})), HasSubstr("x.bin with its ids is missing"));
}

TEST_F(TokenInput, OfAnotherVocabularyIsRefusedWithThePlace) {
  Ids ids = some_ids(9000, 300, 5);
  ids[7777] = 50256;
  ids[8000] = 60000;
  EXPECT_THAT(error_of(options({put("gpt2.bin", as<uint16_t>(ids))})),
              AllOf(HasSubstr("gpt2.bin: token 7777 (byte 15554) is id 50256, outside the vocabulary of 257"),
                    HasSubstr("--tokenizer")));
  EXPECT_THAT(error_of(options({put("x.npy", numpy_file("<i8", "(9000,)", as<int64_t>(ids)))})),
              HasSubstr("token 7777 (byte 62344)"));
  ids[100] = -1;
  EXPECT_THAT(error_of(options({put("i.npy", numpy_file("<i4", "(9000,)", as<int32_t>(ids)))})),
              HasSubstr("token 100 (byte 528) is id -1"));
  BuildOptions learns = options({put("nano.bin", as<uint16_t>(some_ids(5000, 100, 6)))});
  learns.tokenizer = "characters";
  EXPECT_THAT(error_of(learns), AllOf(HasSubstr("nano.bin"), HasSubstr("learns its vocabulary from text")));
}

TEST_F(TokenInput, ThatIsNotWhatItsHeaderSaysIsOneLine) {
  const Ids ids = some_ids(3000, 100, 7);
  const std::string shard = llmc_file(20240520, 1, 3000, as<uint16_t>(ids));
  EXPECT_THAT(error_of(options({put("a.bin", shard.substr(0, 4000))})),
              AllOf(HasSubstr("a.bin: llm.c shard is truncated"), HasSubstr("3000 ids, the file has 1488")));
  EXPECT_THAT(error_of(options({put("a.bin", shard.substr(0, 800))})), HasSubstr("is truncated in its header"));
  EXPECT_THAT(error_of(options({put("a.bin", llmc_file(20240520, 9, 3000, as<uint16_t>(ids)))})),
              HasSubstr("version 9"));
  EXPECT_THAT(error_of(options({put("a.bin", as<uint16_t>(ids) + "x")})), HasSubstr("not a multiple of 2"));
  const auto numpy = [&](const std::string& bytes) { return error_of(options({put("a.npy", bytes)})); };
  EXPECT_THAT(numpy(numpy_file("<u2", "(3001,)", as<uint16_t>(ids))), HasSubstr("3001 ids, the file has 3000"));
  EXPECT_THAT(numpy(numpy_file("<u2", "(2999,)", as<uint16_t>(ids))), HasSubstr("followed by 2 more bytes"));
  EXPECT_THAT(numpy(numpy_file("<f4", "(1500,)", as<uint16_t>(ids))), HasSubstr("of type <f4"));
  EXPECT_THAT(numpy(numpy_file(">u2", "(3000,)", as<uint16_t>(ids))), HasSubstr("of type >u2"));
  EXPECT_THAT(numpy(numpy_file("<u2", "(3000,)", "").substr(0, 40)), HasSubstr("truncated in its header"));
  EXPECT_THAT(numpy(numpy_file("<u2", "(9999999999, 9999999999)", as<uint16_t>(ids))),
              HasSubstr("has a shape that cannot be read"));
  // A .bin of text is text.
  BuildOptions text = options({put("text.bin", "nothing but words\n")}, "text");
  EXPECT_EQ(build_dataset(text).manifest.part(Part::kTrain).tokens, 19);
}

TEST_F(TokenInput, OfARawTypeIsTakenWhenItIsNamed) {
  const Ids ids = some_ids(4000, 100, 8);
  BuildOptions o = options({put("ids", as<uint32_t>(ids))});
  o.format = SourceFormat::kUint32;
  build_dataset(o);
  EXPECT_EQ(ids_of(o.out), ids);
}

/// Parts of the train and validation split together hold every document once.
TEST_F(TokenInput, IsSplitByItsDocuments) {
  const Ids ids = some_ids(50'000, 200, 9);
  BuildOptions o = options({put("nano.bin", as<uint16_t>(ids))});
  o.validation = 0.1;
  const BuildReport report = build_dataset(o);
  EXPECT_EQ(report.manifest.validation_rule, "documents");
  EXPECT_GT(report.manifest.part(Part::kValidation).tokens, 1000);
  EXPECT_EQ(report.manifest.part(Part::kTrain).tokens + report.manifest.part(Part::kValidation).tokens, 50'000);
  EXPECT_EQ(report.manifest.part(Part::kTrain).documents + report.manifest.part(Part::kValidation).documents,
            static_cast<int64_t>(starts_of({ids}).size()));
}

}  // namespace
}  // namespace ashlar::data
