// Checkpoints saved beside the training: killed at any moment, failing, waited for at the end, and what they cost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "core/base/log.h"
#include "core/base/philox.h"
#include "core/base/strings.h"
#include "parallel/checkpoint/find.h"
#include "parallel/comm/self_comm.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Saving : public ::testing::Test {
 protected:
  std::vector<std::string> checkpoints_of(const std::string& run) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_.dir() / run / "checkpoints"))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static size_t times(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
  RunFixture run_;
};

// A run that saves after every step, so that there is a save under way at nearly every moment.
TEST_F(Saving, AKillDuringASaveLeavesANewestGoodCheckpointOfTheUnbrokenRun) {
  // 5 MB a checkpoint: a save takes as long as some steps.
  const std::string words =
      "train tiny.toml model.d_model=96 model.d_ff=384 model.n_heads=4 vocab.pad_to=256 train.eval_every=0 "
      "train.steps=40 checkpoint.every=1 ";
  ASSERT_EQ(run_.ashlar(words + "run.dir=whole checkpoint.keep=1000").code, 0);
  const int kills = long_form() ? 500 : under_address_sanitizer() ? 3 : 8;
  int during = 0, nothing_yet = 0, runs = 0;
  std::map<int64_t, int> seen;  // newest good steps
  for (int done = 0; done < kills;) {
    const std::string dir = str_cat("broken-", runs++);
    for (int attempt = 0; done < kills; ++attempt) {
      ASSERT_LT(attempt, 400) << "the run makes no progress";
      const fs::path folder = checkpoint::checkpoints_dir(run_.dir() / dir);
      const auto saving = [&] {
        std::error_code error;
        for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
          if (at->path().extension() == ".partial") return true;
        return false;
      };
      const pid_t pid = run_.start(words + "run.dir=" + dir, dir + ".log");
      // 1. Killed at a moment of a save: its directory is there.
      const uint32_t random = Philox::block(29, runs, attempt)[0];
      const uint32_t saves = random % 5;  // to be seen before
      int ended = 0;
      for (uint32_t i = 0; i <= saves && ended == 0; ++i) {
        while (saving() && (ended = waitpid(pid, nullptr, WNOHANG)) == 0) std::this_thread::yield();
        while (!saving() && ended == 0 && (ended = waitpid(pid, nullptr, WNOHANG)) == 0) std::this_thread::yield();
      }
      if (ended != 0) break;  // it came to its end first
      std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % 4000));
      kill(pid, SIGKILL);
      if (RunFixture::wait_for(pid) != 128 + SIGKILL) break;
      ++done;
      during += saving() ? 1 : 0;
      // 2. What is there loads, and is the unbroken run's to the bit.
      Log log([](std::string_view) {});
      comm::SelfComm self("ranks");
      comm::ControlPlane ranks(self, "ranks");
      const auto newest = checkpoint::newest_good(run_.dir() / dir, log, ranks);
      ASSERT_TRUE(log.warnings().empty()) << log.warnings().front();
      if (!newest) {
        ++nothing_yet;
        continue;
      }
      ++seen[newest->step];
      for (const char* file : {"weights-00000.safetensors", "optimizer-00000.safetensors"}) {
        ASSERT_EQ(run_.read(str_cat(dir, "/checkpoints/", newest->path.filename().string(), "/", file)) ==
                      run_.read(str_cat("whole/checkpoints/", newest->path.filename().string(), "/", file)),
                  true)
            << dir << " " << newest->path << " " << file;
      }
    }
    // 3. The rest of the run, from the last one.
    ASSERT_EQ(run_.ashlar(words + "run.dir=" + dir).code, 0);
    ASSERT_EQ(run_.exact_metrics(dir), run_.exact_metrics("whole")) << dir;
    fs::remove_all(run_.dir() / dir);
  }
  std::cout << kills << " kills over " << runs << " runs, " << during << " with a partial checkpoint left, "
            << seen.size() << " different newest steps, " << nothing_yet << " before the first\n";
  EXPECT_GE(2 * during, kills) << "most kills fell between saves: the test proves little";
}

TEST_F(Saving, FailuresOfManyRanksAreToldAndEndTheRunAtTheThird) {
  // A file where the directory of checkpoints belongs: nobody, not even root, can save.
  fs::create_directories(run_.dir() / "a");
  run_.write("a/checkpoints", "in the way");
  const ShellResult failed =
      run_.ashlar("launch -np 2 train tiny.toml run.dir=a mesh.data=2 train.steps=1000 train.eval_every=0");
  const std::string said = failed.out + failed.err;
  EXPECT_EQ(failed.code, 6) << said;
  EXPECT_EQ(times(said, "retrying at the next interval (1 of 3 in a row): "), 1U) << said;
  EXPECT_EQ(times(said, "retrying at the next interval (2 of 3 in a row): "), 1U) << said;
  EXPECT_EQ(times(said, "three saves in a row failed: "), 1U) << said;
  EXPECT_THAT(said, AllOf(HasSubstr("a/checkpoints"), HasSubstr("Not a directory"), Not(HasSubstr("\nsaved "))));
  EXPECT_LT(run_.metric("a", "loss").size(), 100U) << "the third failure ends the run";
  fs::remove(run_.dir() / "a/checkpoints");
  EXPECT_EQ(run_.ashlar("launch -np 2 train tiny.toml run.dir=a mesh.data=2 train.steps=6 --restart").code, 0);
}

// One rank of two cannot write: its file is in the way of nothing but itself.
TEST_F(Saving, AFailureOfOneRankIsOneOfAllAndASaveThatWorksBetweenStartsTheCountAnew) {
  const std::string words = "launch -np 2 train tiny.toml run.dir=a mesh.data=2 train.eval_every=0 ";
  const std::string broken = preloading(ASHLAR_STALL_LIBRARY) +
                             " STALL_CALL=sync STALL_DO=fail STALL_RANK=1 "
                             "STALL_PATH=step-0 STALL_ONCE=once ";
  const ShellResult once = run_shell("cd " + shell_quote(run_.dir().string()) + "; export " + broken + "; " +
                                     shell_quote(ASHLAR_BINARY) + " " + words + "train.steps=60");
  EXPECT_EQ(once.code, 0) << once.err;
  const std::string said = once.out + once.err;
  EXPECT_EQ(times(said, "(1 of 3 in a row): "), 1U) << said;
  EXPECT_THAT(said, AllOf(HasSubstr("rank 1 of 2"), HasSubstr("Input/output error"), HasSubstr("saved "),
                          Not(HasSubstr("2 of 3"))));
  EXPECT_EQ(checkpoints_of("a").back(), "step-00000060");
}

TEST_F(Saving, ACheckpointWhoseNameIsNotDurableStaysAndSaysSo) {
  ASSERT_EQ(run_.ashlar("train tiny.toml run.dir=a train.steps=6").code, 0);
  const ShellResult r =
      run_shell("cd " + shell_quote(run_.dir().string()) + "; export " + preloading(ASHLAR_STALL_LIBRARY) +
                " STALL_CALL=sync STALL_DO=fail "
                "STALL_PATH=/checkpoints STALL_END=1; " +
                shell_quote(ASHLAR_BINARY) + " train tiny.toml run.dir=a");
  const std::string said = r.out + r.err;
  EXPECT_EQ(r.code, 6) << said;
  EXPECT_THAT(said,
              AllOf(HasSubstr("(1 of 3 in a row): [checkpoint] '"),
                    HasSubstr("step-00000009' is written and kept, but a power failure may still undo its rename: "
                              "[file] cannot sync directory"),
                    HasSubstr("three saves in a row failed: "), Not(HasSubstr("saved "))));
  // What was said is what is there: three more, each of them good, and the one of before.
  Log log([](std::string_view) {});
  const auto left = checkpoint::list(run_.dir() / "a");
  ASSERT_EQ(left.size(), 5U);
  for (const checkpoint::Found& one : left) EXPECT_NO_THROW(checkpoint::verify(one.path)) << one.path;
  const ShellResult on = run_.ashlar("train tiny.toml run.dir=a");
  EXPECT_EQ(on.code, 0) << on.err;
  EXPECT_THAT(on.out, HasSubstr(str_cat("at step ", left.back().step))) << on.out;
  EXPECT_EQ(run_.metric("a", "loss").size(), 60U);
}

TEST_F(Saving, TheEndOfARunSaysOnceWhatItWaitsFor) {
  const ShellResult r = run_.ashlar("train tiny.toml run.dir=a train.steps=6");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(times(r.out, "the run ends when the current save is complete: a/checkpoints/step-00000006 is"), 1U)
      << r.out;
  const ShellResult none = run_.ashlar("train tiny.toml run.dir=b train.steps=6 checkpoint.every=0");
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_THAT(none.out, Not(HasSubstr("the current save")));
}

TEST_F(Saving, BenchSaysWhatSavingCostsAndLeavesNothing) {
  const ShellResult r = run_.ashlar("launch -np 2 bench save tiny.toml new mesh.data=2 --steps 6 --every 3 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out.substr(r.out.find('{')));
  EXPECT_EQ(json["loop_ms_saving"].size(), 2U);
  EXPECT_EQ(json["turn_ratios"].size(), 2U);
  EXPECT_GT(json["checkpoint_bytes"], 30000);
  EXPECT_GT(json["loop_ratio"], 0);
  EXPECT_GT(json["wall_ratio"], 0);
  EXPECT_FALSE(fs::exists(run_.dir() / "new"));
  const ShellResult taken = run_.ashlar("bench save tiny.toml data");
  EXPECT_EQ(taken.code, 2);
  EXPECT_THAT(taken.err, HasSubstr("expected a new or empty directory, since"));
  EXPECT_TRUE(fs::exists(run_.dir() / "data"));
}

}  // namespace
}  // namespace ashlar::testing
