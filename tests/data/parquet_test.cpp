#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/parquet/text_column.h"
#include "data/read/token_dataset.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/input_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Texts = std::vector<std::optional<std::string>>;

std::string fixture(const std::string& name) {
  return str_cat(ASHLAR_SOURCE_DIR "/tests/data/fixtures/parquet/", name, ".parquet");
}

/// The texts that pyarrow reads from each file.
const std::map<std::string, Texts>& expected_texts() {
  static const std::map<std::string, Texts> texts = [] {
    std::map<std::string, Texts> read;
    const auto json = nlohmann::json::parse(read_all(ASHLAR_SOURCE_DIR "/tests/data/fixtures/parquet/texts.json"));
    for (const auto& [name, values] : json.items()) {
      Texts& of = read[name];
      for (const auto& value : values)
        of.push_back(value.is_null() ? std::nullopt : std::optional(value.get<std::string>()));
    }
    return read;
  }();
  return texts;
}

std::string column_of(const std::string& name) { return name == "nested" ? "doc.text" : "text"; }

Texts texts_of(const TextColumn& column) {
  Texts texts;
  for (const PageRun& run : column.runs()) {
    const auto stored = column.load(run);
    EXPECT_TRUE(stored.has_value());
    column.each_row(run, *stored, [&](int64_t row, std::optional<std::string_view> text) {
      EXPECT_EQ(row, static_cast<int64_t>(texts.size()));
      texts.push_back(text ? std::optional(std::string(*text)) : std::nullopt);
    });
  }
  return texts;
}

/// The lines that a user would have written of these texts.
std::string lines_of(const Texts& texts) {
  std::string lines;
  for (const auto& text : texts)
    lines += (text ? nlohmann::json{{"text", *text}} : nlohmann::json{{"text", nullptr}}).dump() + "\n";
  return lines;
}

class ParquetInput : public ::testing::Test {
 protected:
  BuildOptions options(const std::vector<std::string>& inputs, const std::string& out = "o") {
    BuildOptions o;
    o.inputs = inputs;
    o.out = dir_.file(out);
    o.threads = 3;
    o.block_bytes = 700;
    return o;
  }
  std::string put(const std::string& name, const std::string& bytes) { return put_file(dir_, name, bytes); }
  std::string error_of(const BuildOptions& o) {
    const std::string text = build_error(o);
    EXPECT_FALSE(fs::exists(o.out)) << text;
    return text;
  }
  /// What a build of a damaged file says.
  std::string error_of_bytes(const std::string& bytes, const std::string& column = "text") {
    BuildOptions o = options({put("x.parquet", bytes)});
    o.text_field = column;
    return error_of(o);
  }

  testing::ScratchDir dir_;
};

TEST_F(ParquetInput, OfEveryEncodingAndCodecHasTheTextsThatPyarrowReads) {
  ASSERT_EQ(expected_texts().size(), 10U);
  for (const auto& [name, texts] : expected_texts()) {
    for (const int64_t run_bytes : {int64_t{1}, int64_t{700}, int64_t{2} << 20}) {
      const TextColumn column(fixture(name), name, column_of(name), run_bytes);
      EXPECT_EQ(texts_of(column), texts) << name << " " << run_bytes;
      EXPECT_EQ(column.bytes() == 0, texts.empty()) << name;
    }
  }
}

TEST_F(ParquetInput, IsReadInRunsOfPages) {
  const TextColumn column(fixture("plain_none_v1"), "x", "text", 700);
  ASSERT_GT(column.runs().size(), 3U);
  int64_t at = 0, row = 0;
  for (const PageRun& run : column.runs()) {
    EXPECT_EQ(run.begin, at);
    EXPECT_EQ(run.first_row, row);
    EXPECT_EQ(column.find(run.begin, run.end), &run);
    at = run.end;
    row += run.rows;
  }
  EXPECT_EQ(column.find(1, 2), nullptr);
  EXPECT_EQ(row, 30);
}

/// The dataset of a Parquet file is that of JSON lines of the same documents, nulls and empty texts among them.
TEST_F(ParquetInput, GivesTheDatasetOfTheSameJsonLines) {
  for (const auto& [name, texts] : expected_texts()) {
    if (texts.empty() || name == "all_null_v2") continue;
    BuildOptions lines = options({put(name + ".jsonl", lines_of(texts))}, name + "-lines");
    lines.bad_lines = BadLines::kSkip;
    lines.validation = 0.2;
    build_dataset(lines);
    const Manifest expected = read_manifest(lines.out);
    for (const int threads : {1, 3}) {
      BuildOptions o = lines;
      o.inputs = {fixture(name)};
      o.text_field = column_of(name);
      o.out = dir_.file(str_cat(name, threads));
      o.threads = threads;
      build_dataset(o);
      const Manifest m = read_manifest(o.out);
      for (const Part part : kParts) {
        EXPECT_EQ(m.part(part).documents, expected.part(part).documents) << name;
        for (size_t s = 0; s < expected.part(part).shards.size(); ++s)
          EXPECT_EQ(m.part(part).shards.at(s).digest, expected.part(part).shards[s].digest) << name;
      }
      EXPECT_EQ(m.source_empty_documents, expected.source_empty_documents) << name;
      EXPECT_EQ(m.bad_lines_left_out, expected.bad_lines_left_out) << name;
    }
  }
}

TEST_F(ParquetInput, InAFolderIsFoundAmongOtherFiles) {
  fs::create_directories(dir_.file("in/part"));
  fs::copy(fixture("plain_none_v1"), dir_.file("in/part/000.parquet"));
  fs::copy(fixture("empty"), dir_.file("in/part/001.parquet"));
  fs::copy(fixture("plain_brotli_v2_required"), dir_.file("in/b.parquet"));
  const std::map<std::string, Texts>& texts = expected_texts();
  const std::string more = lines_of({"one more"});
  put("in/c.jsonl", more);
  BuildOptions o = options({dir_.file("in")});
  o.validation = 0;
  const BuildReport report = build_dataset(o);
  EXPECT_EQ(report.manifest.source_files, 3);
  BuildOptions lines = options(
      {put("all.jsonl", lines_of(texts.at("plain_brotli_v2_required")) + more + lines_of(texts.at("plain_none_v1")))},
      "lines");
  lines.validation = 0;
  build_dataset(lines);
  EXPECT_EQ(files_of(o.out).at("train-00000.h5"), files_of(lines.out).at("train-00000.h5"));
}

TEST_F(ParquetInput, WithoutTheColumnSaysWhichThereAre) {
  BuildOptions o = options({fixture("nested")});
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("nested.parquet"), HasSubstr("has no column 'text'"),
                                 HasSubstr("--text-field"), HasSubstr("'doc.text', 'raw'")));
  o.text_field = "messages";
  EXPECT_THAT(error_of(o), HasSubstr("nested column 'messages', expected one string a row"));
  o.text_field = "messages.list.element.content";
  EXPECT_THAT(error_of(o), HasSubstr("has lists in column"));
  o.text_field = "number";
  EXPECT_THAT(error_of(o), HasSubstr("has no strings in column 'number'"));
  o.inputs = {fixture("fixed_length")};
  o.text_field = "text";
  EXPECT_THAT(error_of(o), HasSubstr("has no strings in column 'text'"));
}

TEST_F(ParquetInput, TreatsNullsAndInvalidTextAsJsonLinesDo) {
  BuildOptions o = options({fixture("dictionary_snappy_v1")});
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("dictionary_snappy_v1.parquet, row 0 (from 0), column text"),
                                 HasSubstr("got a null"), HasSubstr("--bad-lines skip")));
  o.inputs = {fixture("invalid_utf8")};
  EXPECT_THAT(error_of(o), AllOf(HasSubstr("row 1 (from 0)"), HasSubstr("byte 4 of the text: invalid UTF-8")));
  const std::string lines = put("bad.jsonl",
                                "{\"text\":\"good\"}\n{\"text\":\"bad \xff\xc3 end\"}\n{\"text\":\"lone "
                                "\xed\xa0\x80\"}\n{\"text\":\"fine\"}\n");
  for (const BadLines policy : {BadLines::kSkip, BadLines::kReplace}) {
    o.bad_lines = policy;
    o.out = dir_.file(str_cat("rows", static_cast<int>(policy)));
    const Manifest rows = build_dataset(o).manifest;
    BuildOptions l = o;
    l.inputs = {lines};
    l.out = dir_.file(str_cat("lines", static_cast<int>(policy)));
    const Manifest expected = build_dataset(l).manifest;
    EXPECT_EQ(rows.part(Part::kTrain).shards[0].digest, expected.part(Part::kTrain).shards[0].digest);
    EXPECT_EQ(rows.bad_lines_left_out, expected.bad_lines_left_out);
    EXPECT_EQ(rows.bad_places, expected.bad_places);
    EXPECT_EQ(rows.bad_lines_left_out + rows.bad_places > 0, true);
  }
}

/// Returns `bytes` with the only occurrence of `from` replaced.
std::string patched(std::string bytes, std::string_view from, std::string_view to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(bytes.find(from, at + 1), std::string::npos);
  return bytes.replace(at, from.size(), to);
}

TEST_F(ParquetInput, InAnUnknownFormSaysHowToConvertIt) {
  using namespace std::string_view_literals;
  const std::string good = read_all(fixture("invalid_utf8"));
  EXPECT_THAT(error_of_bytes(patched(good, "\x18\x04text\x15\x00"sv, "\x18\x04text\x15\x06"sv)),
              AllOf(HasSubstr("codec 3 (LZO) in column 'text'"), HasSubstr("pq.write_table")));
  EXPECT_THAT(
      error_of_bytes(patched(good, "\x15\x00\x15\x06\x15\x06"sv, "\x15\x12\x15\x06\x15\x06"sv)),
      AllOf(HasSubstr("encoding 9 (BYTE_STREAM_SPLIT)"), HasSubstr("column text, row 0"), HasSubstr("write it again")));
  EXPECT_THAT(error_of_bytes("PARE" + good.substr(4, good.size() - 8) + "PARE"),
              HasSubstr("an encrypted Parquet file"));
  EXPECT_THAT(error_of_bytes(good.substr(0, good.size() - 1)), HasSubstr("its end is not that of a Parquet file"));
  EXPECT_THAT(error_of(options({put("x.parquet.gz", gzipped(good))})),
              AllOf(HasSubstr("compressed once more"), HasSubstr("unpack it")));
  BuildOptions o = options({fixture("all_null_v2")});
  o.bad_lines = BadLines::kSkip;
  EXPECT_THAT(error_of(o), HasSubstr("got no text"));
  EXPECT_THAT(error_of(options({fixture("empty")})), HasSubstr("1 empty files"));
  // Text that begins like a Parquet file is text.
  o.inputs = {put("notes.txt", "PAR1 is the first part of this text, a plain one.")};
  build_dataset(o);
}

TEST_F(ParquetInput, WithAWrongChecksumIsRefused) {
  std::string bytes = read_all(fixture("plain_none_v1"));
  size_t at = std::string::npos;
  for (const auto& text : expected_texts().at("plain_none_v1")) {  // a text outside the statistics of the headers
    const size_t found = text->size() < 20 ? std::string::npos : bytes.find(*text);
    if (found != std::string::npos && bytes.find(*text, found + 1) == std::string::npos) at = found;
  }
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'E';
  EXPECT_THAT(error_of_bytes(bytes), HasSubstr("a page does not match its checksum"));
}

/// Reads a damaged file as far as it goes. Returns true if it was read to its end.
bool reads(const std::string& path, const std::string& column, Texts& texts) {
  bool whole = true;
  try {
    texts = texts_of(TextColumn(path, "x", column, 700));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kInput) << e.what();
    whole = false;
  }
  fs::remove(path);
  return whole;
}

/// A truncated file is an error, a changed byte an error or other texts, never a crash (the sanitizers watch).
TEST_F(ParquetInput, ThatIsDamagedAnywhereIsAnErrorAtMost) {
  int64_t errors = 0, read = 0;
  for (const auto& [name, expected] : expected_texts()) {
    const std::string good = read_all(fixture(name));
    Texts texts;
    for (size_t i = 0; i < good.size(); ++i) {
      if (good.size() < 400 || i % 13 == 0) {
        EXPECT_FALSE(reads(put("cut", good.substr(0, i)), column_of(name), texts)) << name << " " << i;
      }
      if (i % 3 > 0) continue;
      std::string bad = good;
      if (i % 2 == 0) bad.erase(i, 1);
      bad[i % bad.size()] ^= static_cast<char>(i % 2 == 0 ? 0 : i % 4 == 1 ? 0xFF : 1U << (i / 4 % 8));
      const bool whole = reads(put("bad", bad), column_of(name), texts);
      ++(whole ? read : errors);
      // With checksums no damage of a page goes unseen.
      if (whole && name == "plain_none_v1") {
        EXPECT_EQ(texts, expected) << i;
      }
    }
  }
  EXPECT_GT(errors, 1500);
  EXPECT_GT(read, 200);
}

/// A build that is killed while it writes continues to the same bytes, and starts over when the file has changed.
TEST_F(ParquetInput, ContinuesAfterAKill) {
  std::vector<std::string> inputs;
  for (int i = 0; i < 160; ++i) {
    inputs.push_back(dir_.file(str_cat(i, ".parquet")));
    fs::copy(fixture(i % 2 == 0 ? "plain_none_v1" : "dictionary_fallback_zstd_v2"), inputs.back());
  }
  BuildOptions o = options(inputs, "unbroken");
  o.bad_lines = BadLines::kSkip;
  o.shard_tokens = kChunkTokens;
  build_dataset(o);
  const auto expected = files_of(o.out);
  o.out = dir_.file("broken");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    o.progress = [](const BuildProgress& p) {
      if (p.phase == BuildProgress::Phase::kWrite && 8 * p.bytes_done > 7 * p.bytes_total) ::_exit(9);
    };
    build_dataset(o);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  EXPECT_GT(build_dataset(o).shards_kept, 0);
  EXPECT_EQ(files_of(o.out), expected);
  EXPECT_TRUE(build_dataset(o).already_complete);
  fs::copy(fixture("plain_brotli_v2_required"), inputs[0], fs::copy_options::overwrite_existing);
  EXPECT_THAT(build_error(o), HasSubstr("already holds a dataset built from other"));
}

}  // namespace
}  // namespace ashlar::data
