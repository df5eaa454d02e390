// Datasets of a run on several ranks: what one rank meets is one line of the job, and shards are checked before step 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <regex>
#include <string>

#include "tests/launch/run_fixture.h"

namespace ashlar {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

int64_t count_of(const std::string& text, const std::string& word) {
  int64_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

class Datasets : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int64_t i = 0; i < 60'000; ++i) text += std::to_string(i * i % 9973) + (i % 9 == 0 ? "\n" : " ");
    run_.write("long.txt", text);
    ASSERT_EQ(run_.ashlar("data build long.txt --out set --shard-tokens 65536").code, 0);
    ASSERT_TRUE(fs::exists(run_.dir() / "set/train-00002.h5"));
  }
  testing::ShellResult train(int ranks, const std::string& more) {
    return run_.ashlar("launch -np " + std::to_string(ranks) +
                       " train tiny.toml train.micro_batch=1 train.steps=6 checkpoint.every=0 " + more);
  }
  testing::RunFixture run_;
};

/// Four ranks of one machine open the manifest once, and no rank looks at every shard.
TEST_F(Datasets, ManifestsAreReadOnceAMachineAndShardsAreShared) {
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(::inotify_add_watch(watch, (run_.dir() / "set").c_str(), IN_OPEN), 0);
  std::map<std::string, int> opened[2];
  for (const int more : {0, 1}) {
    const auto r = train(more == 0 ? 1 : 4, "data.path='\"set\"' run.dir=r" + std::to_string(more));
    ASSERT_EQ(r.code, 0) << r.err;
    alignas(inotify_event) std::array<char, 16384> events{};
    for (ssize_t n = 0; (n = ::read(watch, events.data(), events.size())) > 0;) {
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
        if (event->len > 0) ++opened[more][event->name];
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    EXPECT_EQ(opened[more]["manifest.json"], 1);
  }
  ::close(watch);
  // One rank opens a shard twice, to check and to read it; four that all checked it would open it four times at least.
  int same = 0;
  for (const auto& [name, times] : opened[1]) same += name != "manifest.json" && times <= opened[0][name] ? 1 : 0;
  EXPECT_GE(same, 1) << "the checks are divided, not repeated";
}

TEST_F(Datasets, ShardsThatChangedPlacesAreFoundBeforeTheFirstStep) {
  fs::rename(run_.dir() / "set/train-00001.h5", run_.dir() / "x");
  fs::rename(run_.dir() / "set/train-00002.h5", run_.dir() / "set/train-00001.h5");
  fs::rename(run_.dir() / "x", run_.dir() / "set/train-00002.h5");
  for (const int ranks : {1, 4}) {
    const auto r = train(ranks, "data.path='\"set\"'");
    EXPECT_EQ(r.code, 3) << r.err;
    EXPECT_EQ(count_of(r.err, "ashlar: "), 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr("set/train-00001.h5: the manifest expects train shard 1 with token digest"));
    EXPECT_THAT(r.err, HasSubstr("the file is train shard 2 with token digest"));
    EXPECT_THAT(r.out + r.err, Not(HasSubstr("initial weights")));
  }
}

TEST_F(Datasets, AMissingShardIsFoundBeforeTheFirstStep) {
  fs::remove(run_.dir() / "set/validation-00000.h5");
  const auto r = train(2, "data.path='\"set\"'");
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_EQ(count_of(r.err, "ashlar: "), 1) << r.err;
  EXPECT_THAT(r.err, HasSubstr("set/validation-00000.h5 is missing"));
}

/// Every chunk of the dataset is damaged, so that whichever a rank reads first ends the job, in one line of all.
TEST_F(Datasets, DamagedChunksAreOneLineOfTheJob) {
  for (const char* part : {"train", "validation"}) {
    fs::remove_all(run_.dir() / "bad");
    fs::copy(run_.dir() / "set", run_.dir() / "bad");
    for (const auto& file : fs::directory_iterator(run_.dir() / "bad")) {
      if (!file.path().filename().string().starts_with(part)) continue;
      const std::string name = fs::relative(file.path(), run_.dir());
      std::string bytes = run_.read(name);
      for (size_t at = bytes.size() - 120'000; at < bytes.size() - 10'000; at += 1000)
        bytes[at] = static_cast<char>(bytes[at] ^ 4);
      run_.write(name, bytes);
    }
    const auto r = train(4, "data.path='\"bad\"'");
    EXPECT_EQ(r.code, 3) << r.err;
    EXPECT_EQ(count_of(r.err, "ashlar: "), 1) << r.err;
    EXPECT_EQ(count_of(r.err, "dataset tokens, chunk 0: stored checksum (Fletcher32) "), 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr(std::string("bad/") + part));
    EXPECT_THAT(r.err, HasSubstr(", computed "));
  }
}

TEST_F(Datasets, TheOldFormTrainsWithOneWarning) {
  fs::copy(ASHLAR_SOURCE_DIR "/tests/data/fixtures/old-form", run_.dir() / "old");
  const auto r = train(4, "'data.path=[{path=\"old\",weight=1},{path=\"set\",weight=1e-6},{path=\"old\",weight=2}]'");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(count_of(r.out + r.err, "warning: old is a dataset in the old format"), 1) << r.err;
  const auto eval = run_.ashlar("eval run --data old");
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_EQ(count_of(eval.out + eval.err, "warning: old is a dataset in the old format"), 1) << eval.err;
}

/// The reader's thread meets it; the process says it, once, with all that it takes to find the place.
TEST_F(Datasets, ADamagedChunkIsOneLineOfASingleProcess) {
  std::string bytes = run_.read("set/train-00001.h5");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  run_.write("set/train-00001.h5", bytes);
  const auto r = run_.ashlar("train tiny.toml train.steps=2000 train.eval_every=0 checkpoint.every=0 data.path=set");
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_match(
      r.err, found,
      std::regex("ashlar: \\[data\\] set/train-00001\\.h5: dataset tokens, chunk 0: stored checksum \\(Fletcher32\\) "
                 "([0-9a-f]{8}), computed ([0-9a-f]{8}).*; restore the file or build the dataset again\n")))
      << r.err;
  EXPECT_NE(found[1], found[2]);
}

/// What the manifests tell is refused before the tables of the model.
TEST_F(Datasets, WhatNoStreamCanReadIsRefusedAtOnce) {
  run_.write("brief.txt", "stone laid");
  ASSERT_EQ(run_.ashlar("data build brief.txt --out brief --validation 0").code, 0);
  const auto refused = [&](int ranks, const std::string& sources, const std::string& word) {
    const auto r = train(ranks, "'data.path=" + sources + "'");
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_EQ(count_of(r.err, "ashlar: "), 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr(word));
    EXPECT_THAT(r.out, Not(HasSubstr("model:")));
    EXPECT_THAT(r.out, Not(HasSubstr("layer")));
    EXPECT_FALSE(fs::exists(run_.dir() / "run"));
  };
  refused(2, "[{path=\"set\",weight=1},{path=\"data\",weight=1e-300}]", "2^62");
  refused(1, "\"brief\"", "brief has 11 tokens in its train part, but a window of train.sequence_length = 16 needs 17");
}

}  // namespace
}  // namespace ashlar
