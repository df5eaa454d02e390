#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <new>
#include <random>
#include <set>
#include <string>

#include "core/base/log.h"
#include "parallel/checkpoint/find.h"
#include "parallel/checkpoint/load.h"
#include "parallel/checkpoint/save.h"
#include "tests/parallel/checkpoint_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::ashlar::testing::CheckpointModel;
using ::ashlar::testing::ScratchDir;
using ::ashlar::testing::state_at;

constexpr CheckpointModel::Size kSmallModel{.width = 64, .vocab = 500, .padded = 512, .layers = 2};

/// What a saver that may be killed at any moment tells the process that outlives it.
struct Progress {
  std::atomic<int64_t> begun{0};     // the step whose save has begun
  std::atomic<int64_t> finished{0};  // the last step whose save has returned
};

Saved save_random_step(CheckpointModel& model, const fs::path& run, int64_t step) {
  model.randomize(static_cast<uint64_t>(step));
  return testing::save_step(model, run, step);
}

/// Saves step after step, twice each (the second replaces the first), until it is killed.
[[noreturn]] void saver(const fs::path& run, Progress* progress, int64_t first_step) {
  CheckpointModel model(DType::kBFloat16, true, kSmallModel);
  for (int64_t step = first_step;; ++step) {
    progress->begun = step;
    for (int twice = 0; twice < 2; ++twice) save_random_step(model, run, step);
    progress->finished = step;
  }
}

TEST(CheckpointKill, AfterSigkillAtAnyMomentTheNewestGoodOneIsLegitimate) {
  const ScratchDir dir;
  void* shared = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* progress = new (shared) Progress;
  std::mt19937 random(11);
  const int kills = testing::long_form() ? 500 : 20;
  int64_t saved = 0;
  std::set<std::string> leftovers;
  double save_ms = 0;
  {
    CheckpointModel model(DType::kBFloat16, true, kSmallModel);
    save_ms = 1000 * save_random_step(model, dir.path(), 1).seconds;
    saved = 1;
  }
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    SCOPED_TRACE(str_cat("kill ", kill_number));
    // 1. A saver, killed at a random moment of its first few saves.
    progress->begun = progress->finished = saved;
    const pid_t child = ::fork();
    if (child == 0) saver(dir.path(), progress, saved + 1);
    int status = 0;
    while (progress->begun == saved) {
      ::usleep(50);
      ASSERT_EQ(::waitpid(child, &status, WNOHANG), 0) << "the saver ended by itself";
    }
    ::usleep(static_cast<useconds_t>(1000 * save_ms * 5 * (random() % 1000) / 1000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the saver ended by itself";

    // 2. What a reader finds: whole, and of a step that was finished or under way.
    const int64_t finished = progress->finished;
    const int64_t begun = progress->begun;
    Log log([](std::string_view) {});
    const auto found = newest_good(dir.path(), log);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(log.warnings().empty()) << "a killed saver leaves nothing damaged: " << log.warnings()[0];
    EXPECT_TRUE(found->step == finished || found->step == begun) << found->step << " of " << finished << ", " << begun;
    CheckpointReader reader(found->path);
    CheckpointModel loaded(DType::kBFloat16, true, kSmallModel);
    const TrainingState state = load_training(
        loaded.ctx(),
        {.ranks = loaded.ranks(), .reader = reader, .store = loaded.store(), .optimizer = &loaded.optimizer()});
    EXPECT_EQ(state, state_at(found->step));
    CheckpointModel expected(DType::kBFloat16, true, kSmallModel);
    expected.randomize(static_cast<uint64_t>(found->step));
    EXPECT_TRUE(loaded.all_bytes() == expected.all_bytes()) << "step " << found->step;

    // 3. What the next start does: nothing half-written stays, nothing good is lost.
    for (const auto& entry : fs::directory_iterator(checkpoints_dir(dir.path()))) {
      const std::string extension = entry.path().extension();
      if (!extension.empty()) leftovers.insert(extension);
    }
    remove_leftovers(dir.path(), log);
    const auto again = newest_good(dir.path(), log);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->step, found->step);
    for (const auto& entry : fs::directory_iterator(checkpoints_dir(dir.path()))) {
      EXPECT_EQ(entry.path().extension(), "") << entry.path();
    }
    const auto left = list(dir.path());
    for (const Found& one : left) EXPECT_NO_THROW(CheckpointReader(one.path).verify()) << one.path;
    saved = again->step;
    if (HasFailure()) break;
  }
  CheckpointModel model(DType::kBFloat16, true, kSmallModel);
  save_random_step(model, dir.path(), saved + 1);
  EXPECT_EQ(list(dir.path()).size(), 1U) << "one save that is not killed retires what the killed ones left";
  EXPECT_TRUE(leftovers.contains(".partial")) << "no kill fell into a save: the test proves nothing";
  ::munmap(shared, sizeof(Progress));
}

/// Kills a saver while it removes an old checkpoint. True when the kill fell into the removal.
bool kill_in_removal(const fs::path& run) {
  CheckpointModel model(DType::kBFloat16, true, kSmallModel);
  const fs::path old = save_random_step(model, run, 1).path;
  constexpr int kMany = 10000;  // removing these takes long enough for the kill to fall into it
  for (int i = 0; i < kMany; ++i) testing::spit(old / str_cat("extra-", i), "");
  const pid_t child = ::fork();
  if (child == 0) {
    save_random_step(model, run, 2);
    ::_exit(0);
  }
  int status = 0;
  pid_t ended = 0;
  while (ended == 0 && fs::exists(old)) ended = ::waitpid(child, &status, WNOHANG);
  ::usleep(2000);
  ::kill(child, SIGKILL);
  if (ended == 0) ::waitpid(child, &status, 0);
  const bool cut_short = fs::exists(old.string() + ".partial");
  Log log([](std::string_view) {});
  remove_leftovers(run, log);
  EXPECT_TRUE(log.warnings().empty()) << log.warnings()[0];
  for (const Found& one : list(run)) EXPECT_NO_THROW(CheckpointReader(one.path).verify()) << one.path;
  EXPECT_EQ(list(run).back().step, 2);
  return cut_short;
}

TEST(CheckpointKill, AnOldOneHalfRemovedHasLostItsNameFirst) {
  const ScratchDir dir;
  bool cut_short = false;  // a busy machine may let the saver finish before it is killed
  for (int attempt = 0; attempt < 20 && !cut_short && !HasFailure(); ++attempt) {
    cut_short = kill_in_removal(dir.path() / str_cat("run-", attempt));
  }
  EXPECT_TRUE(cut_short) << "no kill fell into a removal: the test proves nothing";
}

}  // namespace
}  // namespace ashlar::checkpoint
