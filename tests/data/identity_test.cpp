// What a dataset is by its contents, and shards that are not what their place says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>

#include "core/base/error.h"
#include "core/io/checksum.h"
#include "data/build/build_journal.h"
#include "data/build/dataset_builder.h"
#include "data/read/dataset_verify.h"
#include "data/read/token_dataset.h"
#include "data/shards/fingerprint.h"
#include "data/shards/hdf5_shard.h"
#include "data/tokenizer/bytes_tokenizer.h"
#include "tests/data/dataset_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string sentences(int64_t n, const std::string& word) {
  std::string text;
  for (int64_t i = 0; i < n; ++i) text += str_cat("sentence ", i * i % 9973, " of ", word, i % 7 == 0 ? "\n" : " ");
  return text;
}

std::string damage_of(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kDamagedData) << e.what();
    EXPECT_THAT(e.what(), Not(HasSubstr("\n")));
    return e.what();
  }
  return "nothing was thrown";
}

void read_everything(const std::string& directory) {
  TokenDataset dataset(directory);
  for (const Part part : kParts) {
    for (int64_t c = 0; c < dataset.num_chunks(part); ++c) dataset.read_chunk(part, c);
  }
}

class Identity : public ::testing::Test {
 protected:
  Fingerprint built(const std::string& name, const std::string& text, BuildOptions o = {}) {
    const std::string file = dir_.file(name + ".txt");
    write_all(file, text);
    o.inputs = {file};
    o.out = dir_.file(name);
    build_dataset(o);
    return TokenDataset(o.out).fingerprint();
  }
  testing::ScratchDir dir_;
};

TEST_F(Identity, IsTheTextAndTheTokenizerAndNothingElse) {
  const std::string text = sentences(20'000, "the first text");
  const Fingerprint one = built("one", text);
  EXPECT_EQ(one.tokenizer.size(), 32U);
  EXPECT_EQ(one.tokens.size(), 32U);
  EXPECT_EQ(built("elsewhere", text, {.threads = 3, .block_bytes = 1000}), one);
  EXPECT_EQ(built("shards", text, {.shard_tokens = kChunkTokens}), one);
  EXPECT_GT(TokenDataset(dir_.file("shards")).num_shards(), 5);
  fs::rename(dir_.file("shards"), dir_.file("moved"));
  EXPECT_EQ(TokenDataset(dir_.file("moved")).fingerprint(), one);

  std::string other = text;
  other[text.size() / 2] = '#';
  const Fingerprint changed = built("changed", other);
  EXPECT_EQ(changed.tokenizer, one.tokenizer);
  EXPECT_NE(changed.tokens, one.tokens);
  EXPECT_NE(built("share", text, {.validation = 0.2}).tokens, one.tokens);
  const Fingerprint characters = built("characters", text, {.tokenizer = "characters"});
  EXPECT_NE(characters.tokenizer, one.tokenizer);
  EXPECT_NE(characters.tokens, one.tokens);
  EXPECT_EQ(one.tokenizer, tokenizer_fingerprint(BytesTokenizer().to_json()));
}

/// Equal chunks in another order, and equal tokens at another place, are other streams.
TEST_F(Identity, KnowsTheOrderOfChunks) {
  const std::vector<int32_t> a = random_tokens(kChunkTokens, 300, 1), b = random_tokens(kChunkTokens, 300, 2);
  DatasetSpec spec{.train = a, .validation = random_tokens(3000, 100, 3)};
  spec.train.insert(spec.train.end(), b.begin(), b.end());
  write_dataset(dir_.file("ab"), spec);
  std::rotate(spec.train.begin(), spec.train.begin() + kChunkTokens, spec.train.end());
  write_dataset(dir_.file("ba"), spec);
  EXPECT_NE(TokenDataset(dir_.file("ab")).fingerprint(), TokenDataset(dir_.file("ba")).fingerprint());
  const Digest low_carry{0, ~uint64_t{0}};
  Digest sum{1, 1};
  EXPECT_EQ(sum += low_carry, (Digest{2, 0}));
  EXPECT_EQ(digest_from_hex(low_carry.hex()), low_carry);
  for (const char* bad : {"", "0", "0000000000000000FFFFFFFFFFFFFFFF", "000000000000000-0000000000000001"})
    EXPECT_FALSE(digest_from_hex(bad)) << bad;
  // The empty text by the algorithm's own test vectors: the values must never change.
  EXPECT_EQ(digest_of(std::string_view("")).hex(), "99aa06d3014798d86001c324468d497f");
}

/// Two shards of one size and count change places; a shard of one size and count comes from another dataset.
TEST_F(Identity, AShardOfAnotherPlaceIsDamage) {
  built("set", sentences(15'000, "this set"), {.shard_tokens = kChunkTokens});
  built("other", sentences(15'000, "that set"), {.shard_tokens = kChunkTokens});
  const std::string set = dir_.file("set"), first = set + "/train-00000.h5", second = set + "/train-00001.h5";
  ASSERT_GE(TokenDataset(set).manifest().part(Part::kTrain).shards.size(), 3U);
  ASSERT_EQ(TokenDataset(set).manifest().part(Part::kTrain).shards[1].bytes,
            TokenDataset(dir_.file("other")).manifest().part(Part::kTrain).shards[1].bytes);
  const std::string a = read_all(first), b = read_all(second);
  const auto check = [&](const std::string& name, const std::string& expected, const std::string& found) {
    const auto says = AllOf(HasSubstr(name), HasSubstr("expects " + expected), HasSubstr("the file is " + found));
    EXPECT_THAT(damage_of([&] { read_everything(set); }), says);
    EXPECT_THAT(damage_of([&] { TokenDataset(set).check_shard(name == "train-00000.h5" ? 0 : 1); }), says);
    const VerifyReport report = verify_dataset(set);
    EXPECT_THAT(report.damage, ::testing::Contains(says));
    EXPECT_THAT(report.damage, ::testing::Each(Not(HasSubstr("that are not read"))));
  };
  write_all(first, b);
  write_all(second, a);
  check("train-00000.h5", "train shard 0 with token digest", "train shard 1 with token digest");
  write_all(first, a);
  check("train-00001.h5", "train shard 1 with token digest", "train shard 0 with token digest");
  write_all(second, read_all(dir_.file("other") + "/train-00001.h5"));
  check("train-00001.h5", "train shard 1 with token digest", "train shard 1 with token digest");
  // Of another size, and of another part.
  fs::copy_file(set + "/validation-00000.h5", second, fs::copy_options::overwrite_existing);
  check("train-00001.h5", "train shard 1 with token digest", "validation shard 0 with token digest");
  // Of the old form, which does not say what it is.
  fs::copy_file(ASHLAR_SOURCE_DIR "/tests/data/fixtures/old-form/train-00000.h5", second,
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(damage_of([&] { read_everything(set); }), HasSubstr("train-00001.h5"));
  write_all(second, b);
  read_everything(set);
  EXPECT_TRUE(verify_dataset(set).damage.empty());
}

/// A shard and a manifest that agree with each other, but not with the tokens.
TEST_F(Identity, VerifyComparesTheTokensWithTheirDigest) {
  const DatasetSpec spec{.train = random_tokens(5000, 300, 1), .validation = random_tokens(3000, 100, 2)};
  const std::string set = dir_.file("set"), file = set + "/train-00000.h5";
  write_dataset(set, spec);
  Manifest m = read_manifest(set);
  ShardInfo& shard = m.part(Part::kTrain).shards[0];
  const Digest right = shard.digest;
  EXPECT_EQ(right, chunk_digest(0, std::span<const int32_t>(spec.train)));
  EXPECT_TRUE(verify_dataset(set).damage.empty());
  ShardWriter writer({.path = file, .first_chunk = 7, .tokens = 5000});
  writer.append(spec.train);
  writer.finish();
  const io::FileSum sum = io::sum_file(file);
  shard = {.file = shard.file, .tokens = 5000, .bytes = sum.bytes, .crc32 = sum.crc32, .digest = writer.digest()};
  m.part(Part::kTrain).documents = 0;
  write_all(set + "/manifest.json", manifest_text(m));
  EXPECT_THAT(verify_dataset(set).damage,
              ::testing::ElementsAre(AllOf(HasSubstr(file), HasSubstr(right.hex()), HasSubstr(shard.digest.hex()))));
}

TEST_F(Identity, TheOldFormLoadsAndSaysSo) {
  const std::string old = ASHLAR_SOURCE_DIR "/tests/data/fixtures/old-form";
  TokenDataset dataset(old);
  EXPECT_TRUE(dataset.manifest().old_form());
  EXPECT_EQ(dataset.tokens(Part::kTrain), 5400);
  read_everything(old);
  EXPECT_TRUE(verify_dataset(old).damage.empty());
  EXPECT_THAT(dataset.warnings(), ::testing::ElementsAre(AllOf(HasSubstr(old), HasSubstr("old format"))));
  std::vector<int32_t> ids(11);
  dataset.read(Part::kTrain, 34, ids);
  EXPECT_EQ(dataset.tokenizer().decode(ids), read_all(ASHLAR_SOURCE_DIR "/LICENSE").substr(34, 11));
  // The fingerprint is that of its files, never that of a new dataset of the same text.
  const Fingerprint print = dataset.fingerprint();
  EXPECT_THAT(print.tokens, StartsWith("old:"));
  fs::copy(old, dir_.file("copy"));
  EXPECT_EQ(TokenDataset(dir_.file("copy")).fingerprint(), print);
  const Fingerprint rebuilt = built("new", read_all(ASHLAR_SOURCE_DIR "/LICENSE").substr(0, 6000));
  EXPECT_EQ(rebuilt.tokenizer, print.tokenizer);
  EXPECT_NE(rebuilt.tokens, print.tokens);
  EXPECT_TRUE(TokenDataset(dir_.file("new")).warnings().empty());
}

/// A dataset of 150,000 shards of which two exist: opening it touches neither, reading opens what it reads.
TEST_F(Identity, ShardsAreOpenedOnDemand) {
  constexpr int64_t kShards = 150'000;
  const DatasetSpec spec{.train = random_tokens(2 * kChunkTokens, 300, 1),
                         .validation = random_tokens(3000, 100, 2),
                         .shard_tokens = {kChunkTokens}};
  const std::string set = dir_.file("set");
  write_dataset(set, spec);
  Manifest m = read_manifest(set);
  PartInfo& train = m.part(Part::kTrain);
  train.shards.reserve(kShards);
  for (int64_t s = 2; s < kShards; ++s) {
    ShardInfo info = train.shards[1];
    info.file = shard_file(Part::kTrain, s);
    info.digest.low ^= static_cast<uint64_t>(s);
    train.shards.push_back(info);
    train.tokens += info.tokens;
  }
  const std::string text = manifest_text(m);
  write_all(set + "/manifest.json", text);

  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(::inotify_add_watch(watch, set.c_str(), IN_OPEN), 0);
  const auto opened = [&] {
    int64_t files = 0;
    alignas(inotify_event) std::array<char, 16384> events{};
    for (ssize_t n = 0; (n = ::read(watch, events.data(), events.size())) > 0;) {
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
        files += event->len > 0 && (event->mask & IN_ISDIR) == 0 ? 1 : 0;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    return files;
  };
  const std::clock_t start = std::clock();
  TokenDataset dataset(set, text);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(dataset.num_shards(), kShards + 1);
  EXPECT_EQ(dataset.fingerprint(), fingerprint_of(m));
  const auto second = dataset.reopened();
  EXPECT_EQ(opened(), 0) << "the manifest was given, no shard is needed";
  EXPECT_EQ(second->read_chunk(Part::kTrain, 1).size(), static_cast<size_t>(kChunkTokens));
  EXPECT_GT(opened(), 0);
  dataset.check_shard(0);
  dataset.check_shard(kShards);
  EXPECT_GT(opened(), 0);
  EXPECT_THAT(damage_of([&] { dataset.check_shard(2); }), HasSubstr("train-00002.h5 is missing"));
  EXPECT_THAT(damage_of([&] { dataset.read_chunk(Part::kTrain, kShards - 1); }), HasSubstr("train-149999.h5"));
  EXPECT_EQ(opened(), 0);
  ::close(watch);
  EXPECT_LT(seconds, 10) << "0.5 s on a core of 2023, some times that under the sanitizers";
  std::printf("a manifest of %.0f MB and %d shards is opened in %.2f s of a core\n",
              static_cast<double>(text.size()) / 1e6, static_cast<int>(kShards), seconds);
}

}  // namespace
}  // namespace ashlar::data
