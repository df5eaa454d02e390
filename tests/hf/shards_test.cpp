// A model in several files: how it is cut, who writes what, and what an export that fails or is killed leaves.
#include "launch/hf/shards.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "launch/hf/export_folder.h"
#include "launch/hf/hf_checkpoint.h"
#include "tests/hf/hf_support.h"

namespace ashlar::hf {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::golden_dir;
using ::testing::HasSubstr;
using testing::slurp;
using testing::spit;
using testing::StoredModel;
using Shards = std::vector<std::vector<size_t>>;

Shards cut(std::vector<int64_t> bytes, int64_t most) { return split_into_shards(bytes, most); }

TEST(Shards, AreCutAsTransformersCuts) {
  EXPECT_EQ(cut({4, 4, 4}, 0), (Shards{{0, 1, 2}}));
  EXPECT_EQ(cut({4, 4, 4}, 12), (Shards{{0, 1, 2}})) << "the limit itself is allowed";
  EXPECT_EQ(cut({4, 4, 4}, 11), (Shards{{0, 1}, {2}}));
  EXPECT_EQ(cut({4, 4, 4}, 1), (Shards{{0}, {1}, {2}})) << "each larger than the limit";
  EXPECT_EQ(cut({3, 20, 3, 3}, 7), (Shards{{1}, {0, 2}, {3}})) << "the file begun before continues";
  EXPECT_EQ(cut({20, 3}, 7), (Shards{{0}, {1}}));
  EXPECT_EQ(cut({0, 7, 0, 1}, 7), (Shards{{0, 1, 2}, {3}}));
  EXPECT_EQ(cut({}, 7), Shards{});
}

TEST(Shards, EveryTensorIsInOneFileThatTheLimitAllows) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<int64_t> bytes(1 + random() % 60);
    for (int64_t& b : bytes) b = static_cast<int64_t>(random() % 1000);
    const auto most = static_cast<int64_t>(1 + random() % 3000);
    std::multiset<size_t> seen;
    for (const std::vector<size_t>& shard : cut(bytes, most)) {
      ASSERT_FALSE(shard.empty());
      int64_t sum = 0;
      for (const size_t i : shard) sum += bytes[i];
      ASSERT_TRUE(sum <= most || shard.size() == 1) << sum << " of " << most;
      seen.insert(shard.begin(), shard.end());
    }
    ASSERT_EQ(seen.size(), bytes.size());
    ASSERT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), bytes.size());
  }
}

TEST(Shards, RanksShareThemByBytes) {
  const std::vector<int64_t> bytes = {5, 1, 9, 5, 2};
  EXPECT_EQ(share_shards(bytes, 1), (Shards{{2, 0, 3, 4, 1}}));
  EXPECT_EQ(share_shards(bytes, 2), (Shards{{2, 4}, {0, 3, 1}}));
  EXPECT_EQ(share_shards(bytes, 8), (Shards{{2}, {0}, {3}, {4}, {1}, {}, {}, {}}));
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> many(random() % 40);
    int64_t total = 0, largest = 0;
    for (int64_t& b : many) {
      b = static_cast<int64_t>(random() % 1000);
      total += b;
      largest = std::max(largest, b);
    }
    const int ranks = 1 + static_cast<int>(random() % 9);
    std::multiset<size_t> seen;
    for (const std::vector<size_t>& share : share_shards(many, ranks)) {
      int64_t sum = 0;
      for (const size_t s : share) sum += many[s];
      ASSERT_LE(sum, total / ranks + largest);
      seen.insert(share.begin(), share.end());
    }
    ASSERT_EQ(seen.size(), many.size());
    ASSERT_EQ(std::set<size_t>(seen.begin(), seen.end()).size(), many.size());
  }
}

TEST(Shards, AreNamedAsTransformersNamesThem) {
  EXPECT_EQ(shard_file(0, 1), "model.safetensors");
  EXPECT_EQ(shard_file(0, 3), "model-00001-of-00003.safetensors");
  EXPECT_EQ(shard_file(122, 123), "model-00123-of-00123.safetensors");
  EXPECT_EQ(shard_file(0, 100000), "model-00001-of-100000.safetensors");
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json",
                           "model-00001-of-00003.safetensors", "model-1-of-100000.safetensors"}) {
    EXPECT_TRUE(is_model_file(name)) << name;
  }
  for (const char* name :
       {"tokenizer.json", "model-00001.safetensors", "model-a-of-00003.safetensors", "model-1-of-.safetensors",
        "model-00001-of-00003.safetensors.old", "generation_config.json", ""}) {
    EXPECT_FALSE(is_model_file(name)) << name;
  }
}

TEST(Shards, TheIndexIsThatOfTransformers) {
  const io::TensorSpec tensors[] = {{"b", io::FileDType::kF32, {2, 3}}, {"a", io::FileDType::kBF16, {5}}};
  EXPECT_EQ(index_text(tensors, {{0}, {1}}), R"({
  "metadata": {
    "total_parameters": 11,
    "total_size": 34
  },
  "weight_map": {
    "a": "model-00002-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors"
  }
}
)");
}

StoredModel load_folder(const fs::path& folder) {
  StoredModel all;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    for (auto& [name, tensor] : testing::load_file(entry.path())) EXPECT_TRUE(all.emplace(name, tensor).second) << name;
  }
  return all;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

class GoldenShards : public ::testing::TestWithParam<const char*> {};

// In windows of a few rows and files of a few tensors: the same tensors, and the same model when read again.
TEST_P(GoldenShards, HoldWhatOneFileHolds) {
  ImportedModel model = import_hf(golden_dir(GetParam()));
  testing::ImportSource source(model);
  const ashlar::testing::ScratchDir dir;
  const fs::path out = dir.path() / "out";
  constexpr int64_t kMost = 20'000, kWindow = 1000;
  const Exported report =
      testing::export_alone(model.config(), source, out, {.max_shard_bytes = kMost, .window_bytes = kWindow});
  const StoredModel before = testing::load_file(golden_dir(GetParam()) / "model.safetensors");
  EXPECT_EQ(load_folder(out), before);
  ASSERT_GT(report.files, 2U);
  EXPECT_EQ(names_in(out).size(), report.files + 2) << "and config.json and the index";
  size_t widest = 0;
  for (const io::TensorSpec& spec : model.tensors())
    widest = std::max(widest, static_cast<size_t>(spec.shape.size() > 1 ? 4 * spec.shape[1] : 4));
  EXPECT_LE(source.most_bytes(), std::max<size_t>(kWindow, widest));

  const auto index = nlohmann::json::parse(slurp(out / kIndexFile));
  EXPECT_EQ(index["weight_map"].size(), before.size());
  int64_t total = 0;
  for (const auto& [name, tensor] : before) {
    total += static_cast<int64_t>(tensor.bytes.size());
    EXPECT_TRUE(testing::load_file(out / index["weight_map"][name].get<std::string>()).contains(name)) << name;
  }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  for (size_t s = 0; s < report.files; ++s) {
    const StoredModel shard = testing::load_file(out / shard_file(s, report.files));
    int64_t bytes = 0;
    for (const auto& [name, tensor] : shard) bytes += static_cast<int64_t>(tensor.bytes.size());
    EXPECT_TRUE(bytes <= kMost || shard.size() == 1) << bytes;
  }

  ImportedModel again = import_hf(out);
  EXPECT_EQ(again.config().model, model.config().model);
  for (const io::TensorSpec& spec : model.tensors())
    EXPECT_EQ(testing::read_tensor(again, spec.name), testing::read_tensor(model, spec.name)) << spec.name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenShards, ::testing::ValuesIn(testing::golden_folders()),
                         [](const auto& folder) { return std::string(folder.param); });

/// A source that does something before it gives the rows of its last tensor.
class Interrupted : public testing::ImportSource {
 public:
  Interrupted(ImportedModel& model, std::string at, std::function<void()> action)
      : ImportSource(model), at_(std::move(at)), action_(std::move(action)) {}
  void read_rows(std::string_view name, int64_t row, std::span<std::byte> out) override {
    if (name == at_) action_();
    ImportSource::read_rows(name, row, out);
  }

 private:
  std::string at_;
  std::function<void()> action_;
};

class ExportFolders : public ::testing::Test {
 protected:
  ExportFolders() : model_(import_hf(golden_dir("llama"))), source_(model_) {}

  Exported export_to(const fs::path& out, int64_t max_shard_bytes = 30'000) {
    return testing::export_alone(model_.config(), source_, out, {.max_shard_bytes = max_shard_bytes});
  }
  /// The exit code of a child that is killed by itself when it comes to the last norm.
  void export_and_die(const fs::path& out, int64_t max_shard_bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
      Interrupted source(model_, "norm_final.weight", [] { ::kill(::getpid(), SIGKILL); });
      testing::export_alone(model_.config(), source, out, {.max_shard_bytes = max_shard_bytes});
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  ImportedModel model_;
  testing::ImportSource source_;
  ashlar::testing::ScratchDir dir_;
};

TEST_F(ExportFolders, AKilledExportIsNoModelAndTheNextTakesItAway) {
  const fs::path out = dir_.path() / "out", fresh = dir_.path() / "fresh";
  export_to(fresh);
  fs::create_directories(out);
  spit(out / "tokenizer.json", "mine");
  for (const int64_t before : {20'000, 30'000, 0}) {
    export_and_die(out, before);
    EXPECT_FALSE(fs::exists(out / kConfigFile));
    EXPECT_FALSE(fs::exists(out / kIndexFile));
    EXPECT_TRUE(fs::exists(out / ExportFolder::kJournalFile));
    EXPECT_EQ(testing::error_of([&] { import_hf(out); }).code(), ExitCode::kInput);
    // A file that was not whole may have had no name.
    EXPECT_GE(names_in(out).size(), before == 0 ? 2U : 4U);
  }
  export_to(out);
  std::set<std::string> expected = names_in(fresh);
  expected.insert("tokenizer.json");
  EXPECT_EQ(names_in(out), expected);
  for (const std::string& name : names_in(fresh)) EXPECT_EQ(slurp(out / name), slurp(fresh / name)) << name;
  EXPECT_EQ(slurp(out / "tokenizer.json"), "mine");
}

TEST_F(ExportFolders, WhatIsNotOursIsRefusedAndStays) {
  for (const char* name :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
        "model-00007-of-00009.safetensors", "model.safetensors.partial", "config.json.partial", ".ashlar-export"}) {
    const fs::path out = dir_.path() / "foreign";
    fs::create_directories(out);
    spit(out / name, "mine");
    const Error error = testing::error_of([&] { export_to(out); });
    EXPECT_EQ(error.code(), ExitCode::kInput) << name;
    EXPECT_THAT(error.what(), HasSubstr(str_cat("foreign/", name, "'"))) << name;
    EXPECT_EQ(names_in(out), std::set<std::string>{name});
    EXPECT_EQ(slurp(out / name), "mine");
    fs::remove_all(out);
  }
  // A whole export is not replaced either, nor what somebody put beside the rest of one that was killed.
  const fs::path out = dir_.path() / "out";
  export_and_die(out, 30'000);
  spit(out / "model-00001-of-00099.safetensors", "mine");
  const std::set<std::string> before = names_in(out);
  EXPECT_THAT(testing::error_of([&] { export_to(out); }).what(), HasSubstr("of-00099.safetensors' exists"));
  EXPECT_EQ(names_in(out), before);
  fs::remove(out / "model-00001-of-00099.safetensors");
  export_to(out);
  EXPECT_THAT(testing::error_of([&] { export_to(out); }).what(), HasSubstr("config.json' exists"));
}

TEST_F(ExportFolders, AJournalBesideAConfigNamesNothing) {
  const fs::path out = dir_.path() / "out";
  export_and_die(out, 0);
  spit(out / "config.json", "somebody's");
  spit(out / "model.safetensors", "somebody's");
  EXPECT_THAT(testing::error_of([&] { export_to(out); }).what(), HasSubstr("config.json' exists"));
  EXPECT_EQ(slurp(out / "model.safetensors"), "somebody's");
}

TEST_F(ExportFolders, AFailureLeavesNothing) {
  const fs::path out = dir_.path() / "made/out";
  Interrupted full(model_, "norm_final.weight", [] { throw resource_error("test", "the disk is full"); });
  EXPECT_EQ(
      testing::error_of([&] { testing::export_alone(model_.config(), full, out, {.max_shard_bytes = 30'000}); }).code(),
      ExitCode::kResource);
  EXPECT_FALSE(fs::exists(dir_.path() / "made"));
  // In the way of the last file: all others are there by then.
  for (const int64_t most : {0, 30'000}) {
    Interrupted blocked(model_, "norm_final.weight", [&] { fs::create_directories(out / "config.json.partial"); });
    const Error error =
        testing::error_of([&] { testing::export_alone(model_.config(), blocked, out, {.max_shard_bytes = most}); });
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_EQ(names_in(out), std::set<std::string>{"config.json.partial"});
    fs::remove_all(out);
  }
}

TEST_F(ExportFolders, OneExportAtATime) {
  const fs::path out = dir_.path() / "out";
  Log log([](std::string_view) {});
  ExportFolder first(out, {.shards = 2, .beside = {}}, log);
  const Error error = testing::error_of([&] { export_to(out); });
  EXPECT_THAT(error.what(), HasSubstr("another export is writing to"));
  EXPECT_TRUE(fs::exists(out / ExportFolder::kJournalFile));
}

}  // namespace
}  // namespace ashlar::hf
