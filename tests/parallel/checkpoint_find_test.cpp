#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/partial.h"
#include "parallel/checkpoint/retention.h"
#include "parallel/checkpoint/save.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::ashlar::testing::CheckpointModel;
using ::ashlar::testing::error_of;
using ::ashlar::testing::exit_code_of_child;
using ::ashlar::testing::flip_bit;
using ::ashlar::testing::resealed;
using ::ashlar::testing::ScratchDir;
using ::ashlar::testing::slurp;
using ::ashlar::testing::spit;
using ::ashlar::testing::state_at;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CheckpointFind : public ::testing::Test {
 protected:
  CheckpointFind() : model_(DType::kFloat32), log_([](std::string_view) {}) { model_.randomize(1); }

  Saved save_at(int64_t step, int64_t keep = 0) {
    return save(model_.ctx(), {.ranks = model_.ranks(),
                               .run_dir = run(),
                               .store = model_.store(),
                               .optimizer = &model_.optimizer(),
                               .state = state_at(step),
                               .keep = keep});
  }
  fs::path run() const { return dir_.path() / "run"; }
  fs::path step_dir(int64_t step) const { return run() / "checkpoints" / directory_name(step); }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> out;
    for (const Found& found : list(run())) out.push_back(found.step);
    return out;
  }
  std::vector<std::string> folder() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run() / "checkpoints")) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  void damage(int64_t step) { flip_bit(step_dir(step) / "optimizer-00000.safetensors", 8 * 3000 + 3); }

  ScratchDir dir_;
  CheckpointModel model_;
  Log log_;
};

TEST_F(CheckpointFind, KeepsTheNewestAndNeverTouchesLaterSteps) {
  for (const int64_t step : {10, 20, 30}) EXPECT_TRUE(save_at(step).removed.empty());
  EXPECT_THAT(steps(), ElementsAre(10, 20, 30));
  EXPECT_THAT(save_at(40, 2).removed, ElementsAre(step_dir(10), step_dir(20)));
  EXPECT_THAT(steps(), ElementsAre(30, 40));
  // A run that went back behind a damaged checkpoint must not lose what it has just saved to that one's number.
  save_at(35, 1);
  EXPECT_THAT(steps(), ElementsAre(35, 40));
  save_at(100000000, 1);
  EXPECT_THAT(folder(), ElementsAre("step-100000000"));
}

TEST_F(CheckpointFind, ADamagedOneIsNotKeptInPlaceOfAGoodOne) {
  save_at(10);
  save_at(20);
  damage(20);
  const Saved saved = save_at(30, 2);
  EXPECT_THAT(saved.removed, ElementsAre());
  EXPECT_THAT(steps(), ElementsAre(10, 20, 30)) << "20 is damaged: 10 and 30 are the two that count";
  ASSERT_EQ(saved.warnings.size(), 1U);
  EXPECT_THAT(saved.warnings[0], AllOf(HasSubstr("step-00000020"), HasSubstr("chunk 0"), HasSubstr("does not count")));
  // The next good one makes two without it.
  EXPECT_THAT(save_at(40, 2).removed, ElementsAre(step_dir(10), step_dir(20)));
  EXPECT_THAT(steps(), ElementsAre(30, 40));
}

TEST_F(CheckpointFind, SavingAStepAgainReplacesIt) {
  save_at(10);
  save_at(20);
  damage(20);
  model_.randomize(2);
  save_at(20);
  EXPECT_THAT(folder(), ElementsAre("step-00000010", "step-00000020"));
  const auto found = newest_good(run(), log_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 20);
  CheckpointModel loaded(DType::kFloat32);
  CheckpointReader reader(found->path);
  load_training(loaded.ctx(),
                {.ranks = loaded.ranks(), .reader = reader, .store = loaded.store(), .optimizer = &loaded.optimizer()});
  EXPECT_EQ(loaded.all_bytes(), model_.all_bytes());
}

TEST_F(CheckpointFind, LeftoversGoAtStart) {
  save_at(10);
  for (const std::string& left : {step_dir(20).string() + ".partial", step_dir(10).string() + ".replaced"}) {
    fs::copy(step_dir(10), left);
    mark(left);
  }
  fs::create_directories(step_dir(40).string() + ".partial");  // killed between making and marking it
  spit(run() / "checkpoints" / "notes.partial", "the user's");
  fs::create_directories(run() / "checkpoints" / "step-abc.partial");
  EXPECT_THAT(steps(), ElementsAre(10)) << "none of these is a checkpoint";
  EXPECT_EQ(remove_leftovers(run(), log_).size(), 3U);
  EXPECT_THAT(log_.warnings(), ElementsAre());
  EXPECT_THAT(folder(), ElementsAre("notes.partial", "step-00000010", "step-abc.partial"));
  EXPECT_TRUE(remove_leftovers(dir_.path() / "absent", log_).empty());
}

TEST_F(CheckpointFind, WhatSomebodyElsePutThereStays) {
  save_at(10);
  const std::string partial = step_dir(20).string() + ".partial", replaced = step_dir(10).string() + ".replaced";
  for (const std::string& theirs : {partial, replaced}) fs::copy(step_dir(10), theirs);
  EXPECT_TRUE(remove_leftovers(run(), log_).empty());
  ASSERT_EQ(log_.warnings().size(), 2U);
  EXPECT_THAT(log_.warnings()[0], AllOf(HasSubstr("step-00000020.partial"), HasSubstr("leaves it alone")));
  EXPECT_EQ(error_of([&] { save_at(20); }).code(), ExitCode::kInput);
  EXPECT_THAT(folder(), ElementsAre("step-00000010", "step-00000010.replaced", "step-00000020.partial"));
}

TEST_F(CheckpointFind, RetentionReadsAgainWhatHasChanged) {
  Retention retention(run(), {.newest = 2});
  for (const int64_t step : {10, 20}) {
    save_at(step);
    retention.trust({step_dir(step), step});  // as if all ranks had verified it
  }
  retention.start(20);
  EXPECT_THAT(retention.wait().removed, ElementsAre());
  save_at(30);
  damage(20);
  retention.start(30);
  Retention::Report report = retention.wait();
  EXPECT_THAT(report.removed, ElementsAre()) << "20 has changed since it was verified";
  EXPECT_EQ(report.warnings.size(), 1U);
  damage(30);
  retention.start(30);
  report = retention.wait();
  EXPECT_THAT(report.removed, ElementsAre());
  EXPECT_EQ(report.warnings.size(), 1U) << "what was said of 20 is not said again";
  EXPECT_THAT(steps(), ElementsAre(10, 20, 30));
}

TEST_F(CheckpointFind, AReplacementCutShortLosesNothing) {
  save_at(10);
  fs::rename(step_dir(10), step_dir(10).string() + ".replaced");
  EXPECT_THAT(steps(), ElementsAre(10));
  const auto found = newest_good(run(), log_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->path, step_dir(10).string() + ".replaced");
  EXPECT_TRUE(remove_leftovers(run(), log_).empty());
  EXPECT_EQ(newest_good(run(), log_)->path, step_dir(10));
}

TEST_F(CheckpointFind, DamagedNewerOnesAreNamedAndSkipped) {
  EXPECT_FALSE(newest_good(run(), log_).has_value()) << "a new run";
  for (const int64_t step : {10, 20, 30, 40, 50}) save_at(step);
  damage(20);
  fs::remove(step_dir(30) / "weights-00000.safetensors");
  fs::resize_file(step_dir(40) / "manifest.json", 500);
  fs::remove(step_dir(50) / "manifest.json");
  const auto found = newest_good(run(), log_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 10);
  ASSERT_EQ(log_.warnings().size(), 4U);
  EXPECT_THAT(log_.warnings()[0], AllOf(HasSubstr("step-00000050"), HasSubstr("has no manifest.json")));
  EXPECT_THAT(log_.warnings()[1], AllOf(HasSubstr("step-00000040"), HasSubstr("manifest.json' is damaged")));
  EXPECT_THAT(log_.warnings()[2],
              AllOf(HasSubstr("step-00000030"), HasSubstr("weights-00000.safetensors' is missing")));
  EXPECT_THAT(log_.warnings()[3],
              AllOf(HasSubstr("step-00000020"), HasSubstr("optimizer-00000.safetensors' is damaged in chunk 0")));
  damage(10);
  const Error error = error_of([&] { newest_good(run(), log_); });
  EXPECT_EQ(error.code(), ExitCode::kDamagedData);
  EXPECT_THAT(error.what(), HasSubstr("all 5 are damaged"));
  EXPECT_THAT(folder(), ::testing::SizeIs(5)) << "looking changes nothing";
}

TEST_F(CheckpointFind, WhatCannotBeReadIsNamedAsThat) {
  for (const int64_t step : {10, 20, 30, 40, 50, 60}) save_at(step);
  fs::resize_file(step_dir(60) / "manifest.json", uintmax_t{3} << 30);  // a hole, no bytes on the disk
  fs::remove(step_dir(50) / "manifest.json");
  ASSERT_EQ(mkfifo((step_dir(50) / "manifest.json").c_str(), 0600), 0);
  fs::remove_all(step_dir(40));
  fs::create_symlink(step_dir(40), step_dir(40));
  fs::remove(step_dir(30) / "weights-00000.safetensors");
  ASSERT_EQ(mkfifo((step_dir(30) / "weights-00000.safetensors").c_str(), 0600), 0);
  fs::remove(step_dir(20) / "manifest.json");
  fs::create_symlink("manifest.json", step_dir(20) / "manifest.json");
  EXPECT_EQ(newest_good(run(), log_)->step, 10);
  ASSERT_EQ(log_.warnings().size(), 5U);
  EXPECT_THAT(log_.warnings()[0], AllOf(HasSubstr("step-00000060"), HasSubstr("has 3221225472 bytes")));
  EXPECT_THAT(log_.warnings()[1], AllOf(HasSubstr("step-00000050"), HasSubstr("manifest.json' is a pipe")));
  EXPECT_THAT(log_.warnings()[2], AllOf(HasSubstr("step-00000040"), HasSubstr("its path has a loop of links")));
  EXPECT_THAT(log_.warnings()[3], AllOf(HasSubstr("step-00000030"), HasSubstr("weights-00000.safetensors' is a pipe")));
  EXPECT_THAT(log_.warnings()[4], AllOf(HasSubstr("step-00000020"), HasSubstr("its path has a loop of links")));
  EXPECT_THAT(error_of([&] { resolve(step_dir(40), log_); }).what(), HasSubstr("symbolic links"));
}

// Going back in silence would write over it.
TEST_F(CheckpointFind, WhatThisUserMayNotReadIsRefused) {
  for (const int64_t step : {10, 20}) save_at(step);
  fs::permissions(dir_.path(), fs::perms::all);
  const auto as_nobody = [&] {
    const std::string message = (fs::temp_directory_path() / str_cat("may-not-read-", getpid())).string();
    const int code = exit_code_of_child(message, [&] {
      if (geteuid() == 0 && setuid(65534) != 0) throw std::runtime_error("cannot become another user");
      newest_good(run(), log_);
    });
    const std::string text = slurp(message);
    fs::remove(message);
    return std::pair(code, text);
  };
  for (const fs::path& closed : {step_dir(20), step_dir(20) / "manifest.json",
                                 step_dir(20) / "weights-00000.safetensors", run() / "checkpoints"}) {
    fs::permissions(closed, fs::perms::none);
    const auto [code, text] = as_nobody();
    fs::permissions(closed, static_cast<fs::perms>(0755));
    EXPECT_EQ(code, 2) << closed << text;
    EXPECT_THAT(text, AllOf(HasSubstr("Permission denied"), HasSubstr(closed.filename().string()))) << closed;
    EXPECT_THAT(text, ::testing::Not(HasSubstr("damaged")));
  }
}

TEST_F(CheckpointFind, AFolderThatCannotBeReachedIsNotAnEmptyOne) {
  fs::create_directory(run());
  fs::create_symlink("checkpoints", run() / "checkpoints");
  EXPECT_THAT(error_of([&] { list(run()); }).what(), HasSubstr("symbolic links"));
}

TEST_F(CheckpointFind, ANewerVersionIsRefusedAndNotSkipped) {
  save_at(10);
  save_at(20);
  const std::string path = step_dir(20) / "manifest.json";
  std::string text = slurp(path);
  const std::string version = "\"version\": 1,";
  spit(path, resealed(text.replace(text.find(version), version.size(), "\"version\": 2,")));
  const Error error = error_of([&] { newest_good(run(), log_); });
  EXPECT_EQ(error.code(), ExitCode::kInput) << "a run must not go back in silence to what an older program understands";
  EXPECT_THAT(error.what(), AllOf(HasSubstr("step-00000020"), HasSubstr("version 2")));
}

TEST_F(CheckpointFind, ResolvesWhatAUserMayName) {
  save_at(10);
  save_at(20);
  EXPECT_EQ(resolve(run(), log_), step_dir(20));
  EXPECT_EQ(resolve(run() / "checkpoints", log_), step_dir(20));
  EXPECT_EQ(resolve(step_dir(10), log_), step_dir(10));
  damage(20);
  EXPECT_EQ(resolve(run(), log_), step_dir(10));
  EXPECT_EQ(log_.warnings().size(), 1U);

  spit(dir_.file("file"), "x");
  fs::create_directories(dir_.path() / "empty");
  for (const char* path : {"absent", "empty", "file"}) {
    const Error error = error_of([&] { resolve(dir_.path() / path, log_); });
    EXPECT_EQ(error.code(), ExitCode::kInput) << path;
    EXPECT_THAT(error.what(), HasSubstr(path));
  }
  fs::create_directories(dir_.path() / "dataset");
  spit(dir_.file("dataset/manifest.json"), R"({"format":"ashlar-dataset","version":1})");
  const Error dataset = error_of([&] { CheckpointReader(resolve(dir_.path() / "dataset", log_)); });
  EXPECT_EQ(dataset.code(), ExitCode::kInput);
  EXPECT_THAT(dataset.what(), HasSubstr("ashlar-dataset"));
}

}  // namespace
}  // namespace ashlar::checkpoint
