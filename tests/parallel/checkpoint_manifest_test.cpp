#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/base/strings.h"
#include "parallel/checkpoint/manifest.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/cpu_time.h"
#include "tests/support/long_form.h"
#include "tests/support/mutate.h"

namespace ashlar::checkpoint {
namespace {

using ::ashlar::testing::cpu_seconds;
using ::ashlar::testing::error_of;
using ::ashlar::testing::long_form;
using ::ashlar::testing::resealed;
using ::ashlar::testing::state_at;
using ::testing::HasSubstr;

const char kPath[] = "dir/manifest.json";

Manifest sample() {
  Manifest m;
  m.state = state_at(1234);
  m.config_toml = "[run]\nseed = 5 # \"caf\xc3\xa9\"\n";
  m.tokenizer_json = R"({"type":"bytes"})";
  m.metadata = {{"by", "test"}, {"note", "two\nlines"}};
  m.data = {{"aa", "bb"}, {"aa", "cc"}};
  m.files.push_back({"weights-00000.safetensors",
                     {.chunk_bytes = 1 << 20, .total_bytes = (1 << 20) + 7, .crcs = {0xdeadbeef, 0x00000001}}});
  m.files.push_back({"weights-00001.safetensors", {.chunk_bytes = 1 << 20, .total_bytes = 3, .crcs = {0xffffffff}}});
  TensorRecord matrix;
  matrix.name = "a";
  matrix.dtype = io::FileDType::kBF16;
  matrix.shape = {4, 6};
  matrix.slices = {{.file = 0, .stored_as = "a", .block = {.row = 0, .col = 0, .rows = 4, .cols = 2}},
                   {.file = 1, .stored_as = "a", .block = {.row = 0, .col = 2, .rows = 3, .cols = 4}},
                   {.file = 1, .stored_as = "a#1", .block = {.row = 3, .col = 2, .rows = 1, .cols = 4}}};
  TensorRecord scalar;
  scalar.name = "b.m";
  scalar.group = Group::kOptimizer;
  scalar.slices = {{.file = 0, .stored_as = "b.m", .block = {.rows = 1, .cols = 1}}};
  m.tensors = {matrix, scalar};
  return m;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in the manifest";
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(CheckpointManifest, RoundTripsEveryField) {
  const Manifest m = sample();
  const std::string text = manifest_text(m);
  const Manifest got = parse_manifest(text, kPath);
  EXPECT_EQ(got.state, m.state);
  EXPECT_EQ(got.config_toml, m.config_toml);
  EXPECT_EQ(got.tokenizer_json, m.tokenizer_json);
  EXPECT_EQ(got.metadata, m.metadata);
  EXPECT_EQ(got.data, m.data);
  ASSERT_EQ(got.files.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.files[i].name, m.files[i].name);
    EXPECT_EQ(got.files[i].checksums, m.files[i].checksums);
  }
  ASSERT_EQ(got.tensors.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.tensors[i].name, m.tensors[i].name);
    EXPECT_EQ(got.tensors[i].dtype, m.tensors[i].dtype);
    EXPECT_EQ(got.tensors[i].shape, m.tensors[i].shape);
    EXPECT_EQ(got.tensors[i].group, m.tensors[i].group);
    EXPECT_EQ(got.tensors[i].slices, m.tensors[i].slices);
  }
  EXPECT_EQ(manifest_text(got), text);
  EXPECT_EQ(resealed(text), text) << "the checksum is zlib's CRC-32 of everything after the first line";
  Manifest weights_only = m;
  weights_only.state.reset();
  EXPECT_FALSE(parse_manifest(manifest_text(weights_only), kPath).state.has_value());
  Manifest of_before = m;
  of_before.data.clear();
  EXPECT_EQ(manifest_text(of_before).find("\"data\""), std::string::npos);
  EXPECT_TRUE(parse_manifest(manifest_text(of_before), kPath).data.empty());
}

TEST(CheckpointManifest, EveryFlippedBitAndEveryTruncationIsFound) {
  const std::string text = manifest_text(sample());
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string bad = text;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    try {
      parse_manifest(bad, kPath);
      ADD_FAILURE() << "bit " << bit << " of " << text.size() << " bytes was not noticed";
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kDamagedData) << "bit " << bit << ": " << error.what();
    }
  }
  for (size_t length = 0; length < text.size(); ++length) {
    try {
      parse_manifest(text.substr(0, length), kPath);
      ADD_FAILURE() << "a cut at " << length << " was not noticed";
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kDamagedData) << "cut at " << length << ": " << error.what();
    }
  }
  EXPECT_EQ(error_of([&] { parse_manifest(text + " ", kPath); }).code(), ExitCode::kDamagedData);
}

TEST(CheckpointManifest, NewerVersionsAndOtherFormatsAreInputErrors) {
  const std::string text = manifest_text(sample());
  const Error newer =
      error_of([&] { parse_manifest(resealed(replaced(text, "\"version\": 1,", "\"version\": 7,")), kPath); });
  EXPECT_EQ(newer.code(), ExitCode::kInput);
  EXPECT_THAT(newer.what(), HasSubstr("version 7"));
  EXPECT_THAT(newer.what(), HasSubstr("up to version 1"));
  EXPECT_THAT(newer.what(), HasSubstr("newer ashlar"));
  EXPECT_THAT(newer.what(), HasSubstr(kPath));

  const Error other =
      error_of([&] { parse_manifest(resealed(replaced(text, "ashlar-checkpoint", "ashlar-keepsake")), kPath); });
  EXPECT_EQ(other.code(), ExitCode::kInput);
  EXPECT_THAT(other.what(), HasSubstr("ashlar-keepsake"));

  const Error foreign = error_of([&] { parse_manifest(R"({"format":"ashlar-dataset","version":1})", kPath); });
  EXPECT_EQ(foreign.code(), ExitCode::kInput);
  EXPECT_THAT(foreign.what(), HasSubstr("ashlar-dataset"));
}

struct Edit {
  const char* from;
  const char* to;
  const char* expect;
};

TEST(CheckpointManifest, ContradictionsUnderAGoodChecksumAreNamed) {
  const std::string text = manifest_text(sample());
  const Edit table[] = {
      {"\"tokens\"", "\"tokans\"", "'tokens' is missing"},
      {"\"step\": 1234", "\"step\": -234", "'step' is not a count"},
      {"\"step\": 1234", "\"step\": 12.5", "'step' is not a count"},
      {"\"step\": 1234", "\"step\": \"12\"", "'step' has the wrong type"},
      {"\"state\"", "\"stage\"", "'state' is missing"},
      {"\"config_toml\"", "\"config_json\"", "'config_toml' is missing"},
      {"\"by\": \"test\"", "\"by\": 5", "'metadata' has the wrong type"},
      {"\"data\": [", "\"data\": 5, \"x\": [", "'data' is not a list"},
      {"\"tokenizer\": \"aa\"", "\"tokenizer\": 1", "'tokenizer' has the wrong type"},
      {"\"tensors\": [", "\"tensors\": 5, \"x\": [", "'tensors' is not a list"},
      {"\"name\": \"weights-00000.safetensors\"", "\"name\": \"../00000.safetensors\"", "not a plain name"},
      {"\"name\": \"weights-00001.safetensors\"", "\"name\": \"weights-00000.safetensors\"", "listed twice"},
      {"\"bytes\": 3,", "\"bytes\": 0,", "1 checksums for 0 bytes"},
      {"ffffffff", "fffffffg", "not hexadecimal"},
      {"ffffffff", "ffffff", "checksums for"},
      {"\"BF16\"", "\"BF17\"", "unknown dtype"},
      {"\"group\": \"weights\"", "\"group\": \"weight\"", "unknown group"},
      {"\"name\": \"a\"", "\"name\": \"z\"", "out of order"},
      {"\"file\": \"weights-00001.safetensors\"", "\"file\": \"elsewhere\"", "a slice is in a file that is not listed"},
      {"\"shape\": [\n    4,\n    6\n", "\"shape\": [\n    4,\n    5\n", "is outside 4 x 5"},
      {"\"shape\": [\n    4,\n    6\n", "\"shape\": [\n    5,\n    6\n", "slices cover 24 of 30 elements"},
      {"\"shape\": [\n    4,\n    6\n", "\"shape\": [\n    4,\n    9223372036854775807\n",
       "shape is negative or too large"},
      {"\"shape\": [\n    4,\n    6\n", "\"shape\": [\n    -4,\n    6\n", "shape is negative or too large"},
      {"      3,\n      4\n", "      2,\n      3\n", "overlap"},
      {"      3,\n      4\n", "      4,\n      3\n", "'rows' is not a range"},
  };
  for (const Edit& edit : table) {
    SCOPED_TRACE(str_cat(edit.from, " -> ", edit.to));
    const std::string bad = resealed(replaced(text, edit.from, edit.to));
    const Error error = error_of([&] { parse_manifest(bad, kPath); });
    EXPECT_EQ(error.code(), ExitCode::kDamagedData);
    EXPECT_THAT(error.what(), HasSubstr(edit.expect));
    EXPECT_THAT(error.what(), HasSubstr(kPath));
  }
}

// Any placing of rectangles: whether two overlap is asked of all pairs here, of a sweep there.
TEST(CheckpointManifest, OverlapsAreFoundWhereverTheyLie) {
  int overlapping = 0, apart = 0;
  for (uint32_t trial = 0; trial < 400; ++trial) {
    Manifest m = sample();
    TensorRecord& tensor = m.tensors[0];
    tensor.shape = {7, 9};
    // A grid of cuts, so that many trials tile; then one block of some trials is moved.
    uint32_t drawn = 0;
    const auto random = [&] { return Philox::block(7, trial, drawn++)[0]; };
    const auto cuts = [&](int64_t end) {
      std::set<int64_t> at = {0, end};
      for (int i = 0; i < 3; ++i) at.insert(static_cast<int64_t>(random() % static_cast<uint32_t>(end)));
      return std::vector<int64_t>(at.begin(), at.end());
    };
    std::vector<Block> blocks;
    const std::vector<int64_t> rows = cuts(7);
    for (size_t r = 0; r + 1 < rows.size(); ++r) {
      const std::vector<int64_t> cols = cuts(9);
      for (size_t c = 0; c + 1 < cols.size(); ++c)
        blocks.push_back(
            {.row = rows[r], .col = cols[c], .rows = rows[r + 1] - rows[r], .cols = cols[c + 1] - cols[c]});
    }
    if (trial % 2 == 1) {
      Block& moved = blocks[random() % blocks.size()];
      moved.row = static_cast<int64_t>(random() % static_cast<uint32_t>(8 - moved.rows));
      moved.col = static_cast<int64_t>(random() % static_cast<uint32_t>(10 - moved.cols));
    }
    bool meet = false;
    for (size_t i = 0; i < blocks.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        meet =
            meet || (blocks[i].row < blocks[j].row + blocks[j].rows && blocks[j].row < blocks[i].row + blocks[i].rows &&
                     blocks[i].col < blocks[j].col + blocks[j].cols && blocks[j].col < blocks[i].col + blocks[i].cols);
    tensor.slices.clear();
    for (size_t i = 0; i < blocks.size(); ++i)
      tensor.slices.push_back({.file = 0, .stored_as = str_cat("a#", i), .block = blocks[i]});
    ++(meet ? overlapping : apart);
    try {
      manifest_text(m);
      EXPECT_FALSE(meet) << "trial " << trial;
    } catch (const Bug& problem) {  // a moved block that meets no other leaves no hole: it did not move
      EXPECT_TRUE(meet) << "trial " << trial << problem.what();
      EXPECT_THAT(problem.what(), HasSubstr("overlap"));
    }
  }
  EXPECT_GT(overlapping, 100);
  EXPECT_GT(apart, 100);
}

// The text of a manifest whose only tensor is cut into columns.
std::string manifest_of_columns(int64_t slices) {
  std::string rest = R"("format":"ashlar-checkpoint","version":)" + std::to_string(kVersion) +
                     R"(,"state":null,"metadata":{},"files":[{"name":"f","bytes":0,"chunk_bytes":1,"crc32":""}],)"
                     R"("config_toml":"","tokenizer_json":"","tensors":[{"name":"a","group":"weights","dtype":"BF16",)"
                     R"("shape":[1,)" +
                     std::to_string(slices) + R"(],"slices":[)";
  for (int64_t i = 0; i < slices; ++i)
    rest += str_cat(i == 0 ? "" : ",", R"({"file":"f","rows":[0,1],"cols":[)", i, ",", i + 1, "]}");
  return resealed("{\"checksum\":\"00000000\",\n" + rest + "]}]}");
}

// A quadratic check of these takes an hour.
TEST(CheckpointManifest, ManySlicesAreReadInTimeThatGrowsWithThem) {
  const int64_t slices = long_form() ? 1'000'000 : 200'000;
  const double begin = cpu_seconds();
  EXPECT_EQ(parse_manifest(manifest_of_columns(slices), kPath).tensors.at(0).slices.size(), slices);
  EXPECT_LT(cpu_seconds() - begin, long_form() ? 120 : 30);
}

TEST(CheckpointManifest, AnyTextIsReadOrRefused) {
  const std::vector<ExitCode> codes = {ExitCode::kInput, ExitCode::kDamagedData};
  ashlar::testing::expect_bounded({.inputs = {manifest_text(sample())}, .codes = codes},
                                  [](const std::string& text) { parse_manifest(text, kPath); });
  ashlar::testing::expect_bounded({.inputs = {manifest_text(sample())}, .seed = 2, .codes = codes},
                                  [](const std::string& text) {
                                    if (text.starts_with("{\"checksum\":\"") && text.size() > 40)
                                      parse_manifest(resealed(text), kPath);
                                  });
}

TEST(CheckpointManifest, DepthCountsAndEqualKeysAreDamage) {
  const std::string good = manifest_text(sample());
  const auto refused = [&](const std::string& from, const std::string& to) {
    const Error error = error_of([&] { parse_manifest(resealed(replaced(good, from, to)), kPath); });
    EXPECT_EQ(error.code(), ExitCode::kDamagedData) << to.substr(0, 80);
    return std::string(error.what());
  };
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(refused("\"metadata\": {", "\"metadata\": {\"deep\":" + deep + ","), HasSubstr("nested deeper than 200"));
  EXPECT_THAT(refused("\"metadata\": {", std::string("\"version\": 1, \"metadata\": {")), HasSubstr("twice"));
  for (const char* count : {"9223372036854775807", "4611686018427387905"})
    EXPECT_THAT(refused("\"step\": 1234", str_cat("\"step\": ", count)), HasSubstr("'step'"));
}

TEST(CheckpointManifest, WhatCannotBeWrittenIsRefused) {
  Manifest latin1 = sample();
  latin1.config_toml = "name = \"caf\xe9\"";
  const Error error = error_of([&] { manifest_text(latin1); });
  EXPECT_EQ(error.code(), ExitCode::kInput);
  EXPECT_THAT(error.what(), HasSubstr("UTF-8"));

  Manifest gap = sample();
  gap.tensors[0].slices.pop_back();
  EXPECT_THROW(manifest_text(gap), Bug);
}

}  // namespace
}  // namespace ashlar::checkpoint
