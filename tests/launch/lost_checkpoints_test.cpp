// A run directory that lost something: its checkpoints, its name, its lock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "launch/training/directory_lock.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LostCheckpoints : public ::testing::Test {
 protected:
  static constexpr const char* kTrain = "train tiny.toml train.steps=12 train.eval_every=0 run.dir=";
  fs::path folder(const std::string& run) const { return run_.dir() / run / "checkpoints"; }
  void wait_for_rows(const std::string& run, size_t rows) const {
    for (int i = 0; i < 10000 && run_.exact_metrics(run).size() < rows; ++i) usleep(2000);
  }
  RunFixture run_;
};

TEST_F(LostCheckpoints, AreAnErrorThatNamesTheNewest) {
  ASSERT_EQ(run_.ashlar(std::string(kTrain) + "r").code, 0);
  EXPECT_EQ(run_.read("r/committed.json"), "{\"committed_step\":12}\n");
  const std::string rows = run_.read("r/metrics.jsonl");
  // Emptied, not mounted, and a copy of the run without them.
  const auto expect_refused = [&](const char* state) {
    const ShellResult r = run_.ashlar(std::string(kTrain) + "r");
    EXPECT_EQ(r.code, 3) << r.out << r.err;
    EXPECT_THAT(r.err, AllOf(HasSubstr("checkpoint step-00000012 is missing"),
                             HasSubstr(std::string("'r/checkpoints' ") + state), HasSubstr("--restart")));
    EXPECT_EQ(run_.read("r/metrics.jsonl"), rows);
  };
  fs::rename(folder("r"), run_.dir() / "kept");
  expect_refused("does not exist");
  fs::create_directory_symlink(run_.dir() / "unmounted", folder("r"));
  expect_refused("is a dangling link");
  fs::remove(folder("r"));
  fs::create_directory(folder("r"));
  expect_refused("contains no checkpoint");
  // Brought back, and begun anew.
  fs::remove(folder("r"));
  fs::rename(run_.dir() / "kept", folder("r"));
  EXPECT_EQ(run_.ashlar(std::string(kTrain) + "r").code, 0);
  fs::remove_all(folder("r"));
  EXPECT_EQ(run_.ashlar(std::string(kTrain) + "r --restart").code, 0);
  EXPECT_EQ(run_.ashlar(std::string(kTrain) + "r").code, 0);
}

TEST_F(LostCheckpoints, WhenOlderOnesAreThereTheRunGoesBackAndSaysSo) {
  ASSERT_EQ(run_.ashlar(std::string(kTrain) + "r").code, 0);
  const auto rows = run_.exact_metrics("r");
  fs::remove_all(folder("r") / "step-00000012");
  const ShellResult r = run_.ashlar(std::string(kTrain) + "r");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("warning: 'r' had a checkpoint of step 12, which is missing"),
                           HasSubstr("continues from step 9")));
  EXPECT_EQ(run_.exact_metrics("r"), rows);
}

// A directory of an older version has no record: what it has lost nobody knows.
TEST_F(LostCheckpoints, WithoutARecordARunStartsOverAndSaysSo) {
  ASSERT_EQ(run_.ashlar(std::string(kTrain) + "r").code, 0);
  const auto rows = run_.exact_metrics("r");
  fs::remove(run_.dir() / "r/committed.json");
  EXPECT_EQ(run_.ashlar(std::string(kTrain) + "r").code, 0);
  EXPECT_TRUE(fs::exists(run_.dir() / "r/committed.json")) << "made when it is missing";
  fs::remove(run_.dir() / "r/committed.json");
  fs::remove_all(folder("r"));
  const ShellResult r = run_.ashlar(std::string(kTrain) + "r");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("the run starts over at step 0, "), HasSubstr("go to metrics.cut.jsonl")));
  EXPECT_EQ(run_.exact_metrics("r"), rows);
}

TEST_F(LostCheckpoints, AKillBeforeTheFirstSaveStartsOver) {
  const pid_t pid = run_.start("train tiny.toml run.dir=r train.steps=100000000 checkpoint.every=0", "log");
  wait_for_rows("r", 3);
  kill(pid, SIGKILL);
  RunFixture::wait_for(pid);
  const ShellResult r = run_.ashlar(std::string(kTrain) + "r");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("the run starts over at step 0"));
}

TEST_F(LostCheckpoints, ADirectoryThatMovesEndsTheRun) {
  const pid_t pid = run_.start("train tiny.toml run.dir=r train.steps=100000000 train.eval_every=0", "log");
  wait_for_rows("r", 8);
  fs::rename(run_.dir() / "r", run_.dir() / "r2");
  EXPECT_EQ(RunFixture::wait_for(pid), 2);
  EXPECT_THAT(run_.read("log"), AllOf(HasSubstr("was moved to"), HasSubstr("/r2'")));
  EXPECT_FALSE(fs::exists(run_.dir() / "r/metrics.jsonl"));
  EXPECT_EQ(run_.ashlar(std::string(kTrain) + "r2 train.steps=100").code, 0);
}

// flock grants the lock to both.
TEST_F(LostCheckpoints, TwoRunsUnderALyingLockNeverBothWrite) {
  const std::string lie = preloading(ASHLAR_STALL_LIBRARY) + " STALL_PATH=/.lock STALL_CALL=lock STALL_DO=lie";
  const pid_t pid = run_.start("train tiny.toml run.dir=r train.steps=100000000 train.eval_every=0", "log", lie);
  wait_for_rows("r", 3);
  const ShellResult second = run_.ashlar(std::string(kTrain) + "r", lie);
  EXPECT_EQ(second.code, 2) << second.out << second.err;
  EXPECT_THAT(second.err, HasSubstr("another process is training in r: process " + std::to_string(pid)));
  // One on another machine takes it over.
  training::LockHolder far = training::this_process();
  far.host = "far";
  far.boot = "another";
  run_.write("r/.lock.far", training::to_text(far));
  fs::rename(run_.dir() / "r/.lock.far", run_.dir() / "r/.lock");  // at once
  EXPECT_EQ(RunFixture::wait_for(pid), 2);
  EXPECT_THAT(run_.read("log"), AllOf(HasSubstr("expected to own the run directory 'r' alone, but process "),
                                      HasSubstr(" on far since")));
  EXPECT_THAT(run_.read("r/.lock"), HasSubstr("\"far\""));
}

// Each in its own namespace of processes, so that neither can judge the other.
TEST_F(LostCheckpoints, StartersThatCannotJudgeTheOwnerWatchIt) {
  if (!long_form()) GTEST_SKIP() << "watches for 30 s: in the long form";
  const std::string apart = "unshare --pid --fork --kill-child --mount-proc ";
  if (run_shell(apart + "true").code != 0) GTEST_SKIP() << "no namespaces here";
  const std::string lie = preloading(ASHLAR_STALL_LIBRARY) + " STALL_PATH=/.lock STALL_CALL=lock STALL_DO=lie";
  const auto train = [&](const std::string& words) {
    return "cd " + shell_quote(run_.dir().string()) + "; " + apart + "env " + lie + " " + shell_quote(ASHLAR_BINARY) +
           " train tiny.toml run.dir=r train.eval_every=0 " + words;
  };
  const ShellResult both = run_shell(train("train.steps=100000000 >log 2>&1 & sleep 3; ") + train("train.steps=12") +
                                     "; code=$?; kill -KILL $!; wait; exit $code");
  EXPECT_EQ(both.code, 2) << both.out << both.err;
  EXPECT_THAT(both.err, HasSubstr("metrics.jsonl grows"));
  const ShellResult after = run_shell(train("train.steps=100000000 train.steps=12"));
  EXPECT_THAT(after.out, HasSubstr("this run takes over")) << after.err;
}

}  // namespace
}  // namespace ashlar::testing
