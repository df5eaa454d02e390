#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "core/base/error.h"
#include "data/build/dataset_builder.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "data/sources/source_bytes.h"
#include "data/sources/source_content.h"
#include "tests/data/dataset_fixture.h"
#include "tests/data/input_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Lines of words, which compress.
std::string words(int64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  while (static_cast<int64_t>(text.size()) < bytes) {
    text += str_cat("word", random() % 500, random() % 9 == 0 ? "\n" : " ", random() % 40 == 0 ? "\xc3\xa9" : "");
  }
  return text;
}

class PackedInput : public ::testing::Test {
 protected:
  BuildOptions options(const std::vector<std::string>& inputs, const std::string& out) {
    BuildOptions o;
    o.inputs = inputs;
    o.out = dir_.file(out);
    o.threads = 3;
    o.block_bytes = 1000;
    return o;
  }
  std::string put(const std::string& name, const std::string& bytes) { return put_file(dir_, name, bytes); }
  /// One line, and no trace.
  std::string error_of(const BuildOptions& o) {
    const std::string text = build_error(o);
    EXPECT_FALSE(fs::exists(o.out)) << text;
    return text;
  }

  testing::ScratchDir dir_;
};

/// A compressed file gives to the byte the dataset of its content, however it is cut into members and blocks.
TEST_F(PackedInput, IsWhatItHolds) {
  const std::string text = words(700'000, 1);
  std::string lines;
  for (int i = 0; i < 900; ++i)
    lines += str_cat("{\"text\": \"", std::string(static_cast<size_t>(i % 7 * 99), 'w'), " ", i, "\"}\n");
  const size_t half = text.size() / 2;
  const std::string whole[] = {put("plain/a.txt", text), put("plain/b.jsonl", lines)};
  const std::vector<std::vector<std::string>> packed = {
      {put("1/a.txt.gz", gzipped(text)), put("1/b.jsonl.gz", gzipped(lines))},
      {put("2/a.zst", zstd_packed(text)), put("2/b.ndjson.zst", zstd_packed(lines))},
      {put("3/a.txt.gz",
           gzipped(text.substr(0, half)) + gzipped("") + gzipped(text.substr(half)) + std::string(512, 0)),
       put("3/b.jsonl.zst", zstd_packed(lines.substr(0, 777)) + zstd_packed("") + zstd_packed(lines.substr(777)))},
      // Told by its bytes.
      {put("4/a.txt", zstd_packed(text)), put("4/b.jsonl", gzipped(lines))},
  };
  for (const char* kind : {"bytes", "characters"}) {
    for (const int64_t block : {int64_t{1000}, int64_t{50'000}, int64_t{2} << 20}) {
      const std::string name = str_cat(kind, block);
      BuildOptions o = options({whole[0], whole[1]}, name);
      o.block_bytes = block;
      o.tokenizer = kind;
      o.validation = 0.05;
      build_dataset(o);
      for (size_t i = 0; i < packed.size(); ++i) {
        BuildOptions p = o;
        p.inputs = packed[i];
        p.out = dir_.file(str_cat(name, "-", i));
        build_dataset(p);
        EXPECT_EQ(files_of(p.out), files_of(o.out)) << name << " " << i;
      }
    }
  }
}

TEST_F(PackedInput, ThatIsCutOffOrBrokenIsOneLine) {
  const std::string text = words(300'000, 2);
  const std::string good = put("good.txt", text);
  for (const bool gzip : {true, false}) {
    const std::string packed = gzip ? gzipped(text) : zstd_packed(text);
    const char* const name = gzip ? "x.gz" : "x.zst";
    for (const size_t length : {size_t{5}, packed.size() / 2, packed.size() - 9, packed.size() - 1}) {
      EXPECT_THAT(error_of(options({good, put(name, packed.substr(0, length))}, "o")),
                  AllOf(HasSubstr(str_cat(name, " is truncated")), HasSubstr(str_cat("byte ", length))));
    }
    std::string broken = packed;
    broken[broken.size() / 2] = static_cast<char>(broken[broken.size() / 2] ^ 0x55);
    EXPECT_THAT(error_of(options({put(name, broken)}, "o")), HasSubstr(name));
    EXPECT_THAT(error_of(options({put(name, packed + "behind it")}, "o")), HasSubstr(name));
    EXPECT_THAT(error_of(options({put(name, packed + packed.substr(0, 40))}, "o")), HasSubstr("is truncated"));
    EXPECT_THAT(error_of(options({put(name, text)}, "o")), HasSubstr(str_cat("is named ", gzip ? ".gz" : ".zst")));
    EXPECT_THAT(error_of(options({put(name, gzip ? gzipped(packed) : zstd_packed(packed))}, "o")),
                HasSubstr("is compressed twice"));
    EXPECT_THAT(error_of(options({put(name, gzip ? gzipped("") : zstd_packed(""))}, "o")), HasSubstr("1 empty files"));
  }
  EXPECT_THAT(error_of(options({put("x.gz", gzipped(text) + std::string(9, '\0') + "x")}, "o")),
              HasSubstr("after its last gzip member"));
}

TEST_F(PackedInput, OfStandardInputIsUnpacked) {
  const std::string text = words(100'000, 3);
  BuildOptions plain = options({put("standard", text)}, "plain");
  build_dataset(plain);
  BuildOptions o = options({"-"}, "piped");
  o.stdin_descriptor = ::open(put("packed", gzipped(text)).c_str(), O_RDONLY);
  build_dataset(o);
  ::close(o.stdin_descriptor);
  EXPECT_EQ(files_of(o.out), files_of(plain.out));
}

/// A build that is killed while it writes continues to the same bytes.
TEST_F(PackedInput, ContinuesAfterAKill) {
  const std::string text = words(1'500'000, 4);
  BuildOptions o = options({put("a.gz", gzipped(text)), put("b.zst", zstd_packed(words(400'000, 5)))}, "unbroken");
  o.shard_tokens = kChunkTokens;
  build_dataset(o);
  const auto expected = files_of(o.out);
  o.out = dir_.file("broken");
  int64_t kept = 0;
  for (const int64_t stop : {300'000, 900'000, 1'700'000}) {
    const pid_t child = ::fork();
    if (child == 0) {
      o.progress = [&](const BuildProgress& p) {
        if (p.phase == BuildProgress::Phase::kWrite && p.bytes_done > stop) ::_exit(9);
      };
      build_dataset(o);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(WEXITSTATUS(status), 9);
  }
  kept = build_dataset(o).shards_kept;
  EXPECT_GT(kept, 10);
  EXPECT_EQ(files_of(o.out), expected);
}

/// What was read and released does not stay in memory; what was not is there, in any order.
TEST_F(PackedInput, IsUnpackedOnceAndForgotten) {
  const std::string text = words(3'000'000, 6);
  const auto size = static_cast<int64_t>(text.size());
  SourceFile file{.path = put("a.gz", gzipped(text)), .shown = "a.gz", .bytes = size, .packing = Packing::kGzip};
  SourceBytes bytes(file);
  const auto expect_at = [&](int64_t offset, size_t n) {
    std::string out(n, '?');
    out.resize(static_cast<size_t>(bytes.read_at_most(offset, std::as_writable_bytes(std::span(out)))));
    EXPECT_EQ(out, text.substr(static_cast<size_t>(offset), n)) << offset;
  };
  constexpr int64_t kBlock = 100'000;
  for (int64_t at = 0; at < size; at += 2 * kBlock) {  // two threads, the second first
    const int64_t second = std::min(size, at + kBlock);
    expect_at(second, kBlock + 4);
    EXPECT_FALSE(bytes.release(second, std::min(size, at + 2 * kBlock)));
    expect_at(std::max<int64_t>(0, at - 1), kBlock);
    EXPECT_EQ(bytes.release(at, second), at + 2 * kBlock >= size);
  }
  expect_at(17, 1000);  // from the start again
}

TEST_F(PackedInput, ThatIsBinaryIsRefusedByName) {
  std::mt19937_64 random(7);
  std::string noise(5000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::string text = put("in/a.txt", "some text\n");
  EXPECT_THAT(error_of(options({dir_.file("in"), put("b.png", "\x89PNG\r\n\x1a\n" + noise)}, "o")),
              AllOf(HasSubstr("b.png is a PNG image, not text"), HasSubstr("--skip-binary")));
  EXPECT_THAT(error_of(options({put("noise.txt", noise)}, "o")), HasSubstr("holds binary data from byte 0 on"));
  EXPECT_THAT(error_of(options({put("late.txt", words(200'000, 1) + noise)}, "o")), HasSubstr("holds binary data"));
  EXPECT_THAT(error_of(options({put("archive.gz", gzipped(noise))}, "o")), HasSubstr("archive.gz holds binary data"));
  EXPECT_THAT(error_of(options({put("pytorch_model.bin", "PK\x03\x04" + noise)}, "o")), HasSubstr("is a zip archive"));
  EXPECT_THAT(error_of(options({put("m.safetensors", std::string("\x10\1\0\0\0\0\0\0{\"a\":", 13) + text)}, "o")),
              HasSubstr("a safetensors file"));
  put("in/c.xz", std::string("\xfd"
                             "7zXZ\0",
                             6) +
                     noise);
  put("in/sub/d.gz", gzipped("more text\n"));
  put("in/sub/e.o",
      "\x7f"
      "ELF" +
          noise);
  EXPECT_THAT(error_of(options({dir_.file("in")}, "o")),
              AllOf(HasSubstr("c.xz is compressed with xz"), HasSubstr("and 1 more")));
  BuildOptions skipping = options({dir_.file("in")}, "o");
  skipping.skip_binary = true;
  skipping.validation = 0;
  const BuildReport report = build_dataset(skipping);
  EXPECT_EQ(report.binary_files, 2);
  EXPECT_EQ(report.manifest.part(Part::kTrain).tokens, 10 + 1 + 10 + 1);
  // Every byte as it is, when that is asked for; a stray NUL is text.
  BuildOptions raw = options({put("noise.gz", gzipped(noise))}, "raw");
  raw.format = SourceFormat::kBytes;
  raw.validation = 0;
  EXPECT_EQ(build_dataset(raw).manifest.part(Part::kTrain).tokens, static_cast<int64_t>(gzipped(noise).size()) + 1);
  EXPECT_NO_THROW(
      build_dataset(options({put("nul.txt", words(3000, 8) + std::string(1, '\0') + words(3000, 9))}, "nul")));
}

}  // namespace
}  // namespace ashlar::data
