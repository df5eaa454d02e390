// Flipped bits and truncated files: every change is found by `verify`, and none is ever read as data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "core/base/error.h"
#include "core/base/hex.h"
#include "data/read/batch_stream.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/address_limit.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

using ::testing::HasSubstr;

/// Everything a dataset gives to its readers.
struct Content {
  std::string manifest;
  std::vector<int32_t> tokens[2];
  std::vector<int64_t> starts[2];
  bool operator==(const Content&) const = default;
};

Content read_content(const std::string& directory) {
  TokenDataset dataset(directory);
  Content content;
  content.manifest = manifest_text(dataset.manifest());
  for (const Part part : kParts) {
    const int p = static_cast<int>(part);
    for (int64_t c = 0; c < dataset.num_chunks(part); ++c) {
      const auto chunk = dataset.read_chunk(part, c);
      content.tokens[p].insert(content.tokens[p].end(), chunk.begin(), chunk.end());
    }
    for (size_t s = 0; s < dataset.manifest().part(part).shards.size(); ++s) {
      for (const int64_t start : document_starts(dataset, part, static_cast<int64_t>(s)))
        content.starts[p].push_back(start);
    }
  }
  return content;
}

/// Where the tokens of each chunk of a shard lie in its file, found by their bytes.
std::vector<size_t> chunk_offsets(const std::string& file, std::span<const int32_t> tokens) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < tokens.size(); at += kChunkTokens) {
    std::string bytes;
    for (const int32_t id : tokens.subspan(at, std::min<size_t>(kChunkTokens, tokens.size() - at))) {
      bytes.push_back(static_cast<char>(id & 255));
      bytes.push_back(static_cast<char>(id >> 8));
    }
    offsets.push_back(file.find(bytes));
    EXPECT_NE(offsets.back(), std::string::npos);
  }
  return offsets;
}

class Damage : public ::testing::Test {
 protected:
  void SetUp() override {
    spec_.train = random_tokens(65536 * 3 + 1000, 300, 1);
    spec_.validation = random_tokens(3000, 100, 2);
    spec_.shard_tokens = {131072};
    write_dataset(path(), spec_);
    content_ = read_content(path());
    ASSERT_EQ(content_.tokens[0], spec_.train);
    ASSERT_EQ(content_.tokens[1], spec_.validation);
    ASSERT_TRUE(verify_dataset(path()).damage.empty());
  }

  std::string path() const { return dir_.file("set"); }

  /// What must hold for any damage to `file`: verify names it, and reading fails as damaged data or gives what was
  /// written. Returns the text of the reading error, empty if there was none.
  std::string check_found(const std::string& file, const std::string& how) {
    const VerifyReport report = verify_dataset(path());
    EXPECT_FALSE(report.damage.empty()) << "verify missed " << how;
    for (const std::string& line : report.damage) EXPECT_THAT(line, HasSubstr(file)) << how;
    try {
      EXPECT_EQ(read_content(path()), content_) << "read wrong in silence: " << how;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kDamagedData) << how << ": " << e.what();
      EXPECT_THAT(e.what(), HasSubstr(file)) << how;
      EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("\n")));
      return e.what();
    }
    return "";
  }

  /// Both values are said, and the stored one is what the file holds behind the chunk.
  static void expect_checksums(const std::string& error, const std::string& how) {
    const std::string stored = "stored checksum (Fletcher32) ", computed = ", computed ";
    const size_t s = error.find(stored), c = error.find(computed);
    ASSERT_NE(s, std::string::npos) << how << ": " << error;
    ASSERT_NE(c, std::string::npos) << how << ": " << error;
    EXPECT_NE(error.substr(s + stored.size(), 8), error.substr(c + computed.size(), 8)) << how;
  }

  testing::ScratchDir dir_;
  DatasetSpec spec_;
  Content content_;
};

TEST_F(Damage, BitFlipStorm) {
  const int trials = testing::long_form() ? 5000 : 200;
  std::mt19937_64 random(7);
  const std::string files[] = {"train-00000.h5", "train-00001.h5", "validation-00000.h5", "manifest.json"};
  std::vector<std::string> originals;
  std::vector<std::vector<size_t>> chunks(4);
  for (const std::string& file : files) originals.push_back(read_all(path() + "/" + file));
  chunks[0] = chunk_offsets(originals[0], std::span(spec_.train).first(131072));
  chunks[1] = chunk_offsets(originals[1], std::span(spec_.train).subspan(131072));
  chunks[2] = chunk_offsets(originals[2], spec_.validation);
  int failed_reads = 0, harmless = 0, in_tokens = 0;
  ::testing::internal::CaptureStderr();
  for (int trial = 0; trial < trials; ++trial) {
    // A third each: tokens, everything else in the shards, the manifest.
    const int kind = trial % 3;
    const size_t f = kind == 2 ? 3 : random() % 3;
    std::string bytes = originals[f];
    size_t at = 0;
    int64_t chunk = -1;
    do {
      at = random() % bytes.size();
      chunk = -1;
      for (size_t c = 0; c < chunks[f].size(); ++c) {
        if (at >= chunks[f][c] && at < chunks[f][c] + 131072) chunk = static_cast<int64_t>(c);
      }
    } while (kind != 2 && (kind == 0) != (chunk >= 0));
    const int bit = static_cast<int>(random() % 8);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    write_all(path() + "/" + files[f], bytes);
    const std::string how = str_cat(files[f], " byte ", at, " bit ", bit);
    const std::string error = check_found(files[f], how);
    failed_reads += error.empty() ? 0 : 1;
    harmless += error.empty() ? 1 : 0;
    if (chunk >= 0) {
      ++in_tokens;
      EXPECT_THAT(error, HasSubstr(str_cat("dataset tokens, chunk ", chunk))) << how;
      expect_checksums(error, how);
    }
    if (kind == 2) {
      EXPECT_NE(error, "") << how;
    }
    write_all(path() + "/" + files[f], originals[f]);
    ASSERT_FALSE(HasFailure()) << "stopped at trial " << trial;
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "HDF5 must not print";
  EXPECT_EQ(read_content(path()), content_);
  EXPECT_GE(in_tokens, trials / 3);
  EXPECT_GT(failed_reads, trials / 2);
  RecordProperty("harmless", harmless);
}

TEST_F(Damage, TruncatedFilesAreNamed) {
  const int trials = testing::long_form() ? 5000 : 60;
  std::mt19937_64 random(8);
  const std::string files[] = {"train-00000.h5", "train-00001.h5", "validation-00000.h5", "manifest.json"};
  for (int trial = 0; trial < trials; ++trial) {
    const std::string& file = files[trial % 4];
    const std::string original = read_all(path() + "/" + file);
    write_all(path() + "/" + file, original.substr(0, trial < 4 ? 0 : random() % original.size()));
    const std::string error = check_found(file, "truncated " + file);
    EXPECT_NE(error, "");
    if (file != "manifest.json") {
      EXPECT_THAT(error, HasSubstr("truncated"));
    }
    write_all(path() + "/" + file, original);
  }
}

TEST_F(Damage, MissingShardIsNamedAtOnce) {
  std::filesystem::remove(path() + "/train-00001.h5");
  EXPECT_THAT(check_found("train-00001.h5", "removed"), HasSubstr("missing"));
  ASSERT_EQ(mkfifo((path() + "/train-00001.h5").c_str(), 0600), 0);
  EXPECT_THAT(check_found("train-00001.h5", "a pipe"), HasSubstr("is not a regular file"));
}

/// Without memory nothing is known of the files: no word of damage.
TEST_F(Damage, IsNotSaidOfFilesThatNoMemoryIsThereFor) {
  if (testing::under_address_sanitizer()) GTEST_SKIP() << "which reserves more addresses than any limit";
  const auto verify = [&] {
    if (!testing::limit_addresses_to(int64_t{1} << 20)) _exit(6);
    try {
      _exit(verify_dataset(path()).damage.empty() ? 0 : 3);
    } catch (const Error& e) {
      _exit(static_cast<int>(e.code()));
    } catch (const std::bad_alloc&) {
      _exit(6);
    }
  };
  EXPECT_EXIT(verify(), ::testing::ExitedWithCode(6), "");
}

/// The computed checksum is right: of a chunk that is whole it is the stored one, so one flipped bit of the stored
/// checksum shows as exactly that bit.
TEST_F(Damage, StoredAndComputedChecksumsAreSaid) {
  const std::string file = path() + "/train-00000.h5";
  const std::string original = read_all(file);
  for (const size_t chunk : chunk_offsets(original, std::span(spec_.train).first(131072))) {
    const size_t at = chunk + 131072;  // the checksum stands behind the tokens
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(original[at + i])} << (8 * i);
    std::string bytes = original;
    bytes[at + 2] = static_cast<char>(bytes[at + 2] ^ 16);
    write_all(file, bytes);
    EXPECT_THAT(check_found("train-00000.h5", "checksum"),
                HasSubstr(str_cat("stored checksum (Fletcher32) ", hex32(value ^ (uint32_t{16} << 16)), ", computed ",
                                  hex32(value))));
  }
  write_all(file, original);
}

/// A stream stops at the damaged chunk, not before and not after.
TEST_F(Damage, TrainingNeverSeesADamagedChunk) {
  const std::string file = path() + "/train-00000.h5";
  std::string bytes = read_all(file);
  const size_t at = chunk_offsets(bytes, std::span(spec_.train).first(131072))[1] + 5000;
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_all(file, bytes);
  const StreamOptions options{.sequence_length = 128, .micro_batch = 1, .vocab_size = 257};
  TrainStream stream(opened({{path(), 1}}), options, 3, 0);
  Batch batch;
  int64_t good = 0;
  try {
    for (; good < stream.windows(0); ++good) {
      stream.next(batch);
      std::vector<int32_t> row = batch.ids;
      row.push_back(batch.targets.back());
      ASSERT_NE(std::search(spec_.train.begin(), spec_.train.end(), row.begin(), row.end()), spec_.train.end());
    }
    FAIL() << "the damaged chunk was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDamagedData);
    EXPECT_THAT(e.what(), ::testing::AllOf(HasSubstr("train-00000.h5"), HasSubstr("tokens, chunk 1")));
  }
  EXPECT_EQ(stream.position(), good) << "the failed batch is not counted";
}

TEST_F(Damage, NewerVersionIsRefused) {
  const std::string file = path() + "/manifest.json";
  const std::string text = read_all(file);
  std::string newer = text;
  newer.replace(newer.find("\"version\": 2"), 12, "\"version\": 3");
  write_all(file, newer);
  EXPECT_THAT([&] { read_manifest(path()); }, ::testing::ThrowsMessage<Error>(HasSubstr("checksum")));
  write_all(file, resealed(newer));
  try {
    read_manifest(path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_THAT(e.what(), ::testing::AllOf(HasSubstr("version 3"), HasSubstr("versions 1 and 2")));
  }
  write_all(file, "{\"format\": \"something.else\"}");
  try {
    read_manifest(path());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput);
    EXPECT_THAT(e.what(), HasSubstr("something.else"));
  }
}

}  // namespace
}  // namespace ashlar::data
