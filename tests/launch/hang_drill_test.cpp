// Hang drills on the program: ranks that are stopped, file systems that hang, operations that do not match, each in
// every phase of a run: named within the deadline, with exit code 5. And healthy runs that only look slow: no alarm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// What the preloaded library is told (tests/support/preload/stall.cpp).
struct Stall {
  std::string call, path, what;
  int rank = -1;
  std::string once, thread;
  int64_t min_bytes = 0;
  int skip = 0;
};
std::string variables(const Stall& stall) {
  std::string words = preloading(ASHLAR_STALL_LIBRARY);
  words += str_cat(" STALL_CALL=", stall.call, " STALL_PATH=", stall.path, " STALL_DO=", stall.what);
  if (stall.rank >= 0) words += str_cat(" STALL_RANK=", stall.rank);
  if (!stall.thread.empty()) words += " STALL_THREAD=" + stall.thread;
  if (stall.min_bytes > 0) words += str_cat(" STALL_MIN=", stall.min_bytes);
  if (stall.skip > 0) words += str_cat(" STALL_SKIP=", stall.skip);
  if (!stall.once.empty()) words += " STALL_ONCE=" + stall.once;
  return words;
}
std::string preload(const Stall& stall) { return "export " + variables(stall) + "; "; }

constexpr double kHangAfter = 2, kDeadline = 10;

class Drill : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::under_address_sanitizer())
      GTEST_SKIP() << "the address sanitizer wants to be loaded before the library that makes the file system hang";
  }
  // Runs `ashlar WORDS` with a stall; `seconds_` is how long it took in all.
  ShellResult run(const Stall& stall, const std::string& words) {
    fs::remove_all(run_.dir() / "r");
    const auto start = Clock::now();
    const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + "; " + preload(stall) +
                                    "exec timeout -s KILL 100 " + shell_quote(ASHLAR_BINARY) + " " + words);
    seconds_ = seconds_since(start);
    return r;
  }
  static std::string train(const std::string& more) {
    return str_cat("train tiny.toml run.dir=r vocab.pad_to=2 run.hang_after=", kHangAfter, " ", more);
  }
  static std::string on_four(const std::string& more) {
    return "launch -np 4 " + train("mesh.tensor=2 mesh.pipeline=2 train.micro_batch=1 " + more);
  }
  static void expect_named(const ShellResult& r, const std::string& suspect) {
    EXPECT_EQ(r.code, 5) << r.err;
    EXPECT_THAT(r.err, AllOf(HasSubstr("ashlar: hang: no rank has made progress for"),
                             ContainsRegex("ashlar: hang: " + suspect), HasSubstr("the job ends here")));
  }
  const RunFixture run_;
  double seconds_ = 0;
};

struct Phase {
  const char* name;
  Stall stall;  ///< `what` is "stop"
  const char* words;
  double hang_after = kHangAfter;
};
// Where SIGSTOP meets a rank: which file it was about to touch. The windows of 64 chunks are mixed: some 16 steps touch
// 40 of them.
std::vector<Phase> phases() {
  return {
      {"start", {.call = "read", .path = "train-0", .what = "stop", .thread = "ashlar-reader"}, "train.steps=2000", 60},
      {"data wait",
       {.call = "read",
        .path = "large/train-0",
        .what = "stop",
        .thread = "ashlar-reader",
        .min_bytes = 100'000,
        .skip = 40},
       "train.steps=2000 data.path=large"},
      {"validation",
       {.call = "read", .path = "validation-0", .what = "stop", .min_bytes = 100'000},
       "train.steps=100 train.eval_every=2 train.eval_sequences=0"},
      {"save", {.call = "write", .path = "step-0", .what = "stop"}, "train.steps=100 checkpoint.every=2"},
      {"save's sync", {.call = "sync", .path = "step-0", .what = "stop"}, "train.steps=100 checkpoint.every=2"},
  };
}

TEST_F(Drill, AStoppedRankIsNamedInEachPhaseSlow) {
  int rank = 3;
  if (long_form()) {
    std::string text;
    for (int i = 0; i < 120; ++i) text += run_.read("text.txt");
    run_.write("large.txt", text);
    ASSERT_EQ(run_.ashlar("data build large.txt --out large").code, 0);
  }
  for (const Phase& phase : phases()) {
    if (!long_form() && std::string(phase.name) != "save") continue;  // the others in the long form
    for (int i = 0; i < (long_form() ? 4 : 1); ++i, ++rank) {
      SCOPED_TRACE(str_cat(phase.name, " on rank ", rank % 4));
      Stall stall = phase.stall;
      stall.rank = rank % 4;
      const ShellResult r = run(stall, on_four(phase.words));
      expect_named(r, str_cat("rank ", rank % 4, " of 4 on [^ ]+ is stopped \\(state T\\)"));
      const bool starting = std::string(phase.name) == "start";
      EXPECT_THAT(r.err, HasSubstr(starting ? "(the limit before the first step is 60 s)" : "(run.hang_after = 2 s, "));
      EXPECT_LT(seconds_, phase.hang_after + kDeadline + 8) << "start and end included";
    }
  }
}

// In the first step, and in the middle of forward and backward: by time.
TEST_F(Drill, ARankStoppedWhileItComputesIsNamedSlow) {
  if (!long_form()) return;  // where it is stopped makes no difference to who sees it
  const std::string words = on_four(
      "model.d_model=128 model.n_heads=4 model.d_ff=512 train.global_batch=64 train.sequence_length=128 "
      "train.steps=100000 checkpoint.every=0");
  for (int rank = 0; rank < 4; ++rank) {
    for (const int delay_ms : {50, 1500}) {
      SCOPED_TRACE(str_cat("rank ", rank, " after ", delay_ms, " ms"));
      fs::remove_all(run_.dir() / "r");
      fs::remove(run_.dir() / "log");
      const pid_t pid = run_.start(words, "log");
      for (int i = 0; i < 6000 && run_.read("log").find("mfu is") == std::string::npos; ++i) usleep(5000);
      usleep(static_cast<unsigned>(delay_ms) * 1000);
      const auto start = Clock::now();
      kill(run_.rank_process(rank), SIGSTOP);
      EXPECT_EQ(RunFixture::wait_for(pid), 5);
      const std::string log = run_.read("log");
      EXPECT_THAT(log,
                  ContainsRegex(str_cat("ashlar: hang: rank ", rank, " of 4 on [^ ]+ is stopped \\(state T\\) in")));
      for (int r = 0; r < 4; ++r) EXPECT_THAT(log, HasSubstr(str_cat("ashlar: [rank ", r, " of 4 on ")));
      EXPECT_LT(seconds_since(start), 6 + kHangAfter + kDeadline) << "the longest step included";
    }
  }
}

// A file system that hangs is told as soon as that is clear, and is no hang before run.stall_after.
TEST_F(Drill, ABlockedReaderIsNamedWithItsFileSlow) {
  const ShellResult r =
      run({.call = "read", .path = "train-0", .what = "sleep:60", .rank = 1, .thread = "ashlar-reader"},
          on_four("train.steps=2000 run.stall_after=4"));
  EXPECT_THAT(r.err,
              ContainsRegex("ashlar: warning: a file system stalls: \\[rank 1 of 4 on [^ ]+\\] its reader thread "
                            "is in fcntl of [^ ]*/data/train-0[^ ]* for [0-9]+ s; the job waits for it"));
  expect_named(r, "rank 1 of 4 on [^ ]+ in reading data: its reader thread is in fcntl of [^ ]*/data/train-0");
  EXPECT_THAT(r.err, ContainsRegex("reader thread: state [SD], in fcntl of [^ ]*/data/train-0"));
  EXPECT_THAT(r.err, HasSubstr("waits for other ranks, last operation"));
}

// Beside the steps: told while they go on. The next save waits for it, and is named with the file.
TEST_F(Drill, ABlockedBackgroundSaveIsNamedWithItsFileSlow) {
  const ShellResult r = run({.call = "sync", .path = ".partial/", .what = "sleep:60", .thread = "ashlar-saver"},
                            train("train.steps=100000 checkpoint.every=50 run.stall_after=3"));
  EXPECT_THAT(r.err,
              ContainsRegex("ashlar: warning: a file system stalls: \\[rank 0 of 1 on [^ ]+\\] its saver thread is "
                            "in fcntl of [^ ]*/step-0[^ ]*\\.partial/<new file> for [0-9]+ s"));
  expect_named(r, "rank 0 of 1 on [^ ]+ in saving: its saver thread is in fcntl of [^ ]*/r/checkpoints/step-0");
  EXPECT_THAT(r.err, HasSubstr("main thread: "));
}

// The main thread itself waits for the file system, for longer than run.hang_after: no hang. In the long form a minute.
TEST_F(Drill, AStallThatEndsIsToldAndIsNoHangSlow) {
  struct Place {
    const char *call, *path, *thread;
  };
  const int stall_s = long_form() ? 60 : 4, after = long_form() ? 10 : 1;
  const size_t steps = long_form() ? 6000 : 600;  // beyond the end of the stall, which takes a moment to be seen
  for (const Place& place : {Place{"write", "metrics.jsonl", ""}, {"sync", ".partial/", "ashlar-saver"}}) {
    if (!long_form() && *place.thread != '\0') continue;
    SCOPED_TRACE(place.path);
    fs::remove(run_.dir() / "once");
    const ShellResult r = run(
        {.call = place.call,
         .path = place.path,
         .what = str_cat("sleep:", stall_s),
         .once = "once",
         .thread = place.thread},
        str_cat(train("train.eval_every=0 checkpoint.every=100"), " run.hang_after=", after, " train.steps=", steps));
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_GT(seconds_, stall_s);
    EXPECT_THAT(r.err, AllOf(HasSubstr("ashlar: warning: a file system stalls: [rank 0 of 1"), HasSubstr(place.path),
                             HasSubstr("ashlar: the file system responds again, after "), Not(HasSubstr("hang:"))));
    EXPECT_EQ(run_.metric("r", "loss").size(), steps);
  }
}

TEST_F(Drill, WhoOnlyWantsAReportGoesOnSlow) {
  if (!long_form()) return;  // Ranks.AStoppedRankIsNamedAndWhoOnlyReportsGoesOn shows it without the program
  const ShellResult r = run({.call = "sync", .path = "step-0", .what = "sleep:6", .once = "once"},
                            train("run.hang_action=report run.stall_after=0 train.steps=300 checkpoint.every=10"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.err, AllOf(HasSubstr("hang: no rank has made progress"), HasSubstr("the job continues"),
                           HasSubstr("the ranks make progress again")));
}

// What the messages themselves show needs no watch; what would be silence is the watch's.
TEST_F(Drill, OperationsThatDoNotMatchAreNamedSlow) {
  const auto ranks = [](const std::string& what) {
    return run_shell("timeout -s KILL 60 " + shell_quote(ASHLAR_SOURCE_DIR "/launch/scripts/with_ranks.sh") + " 4 " +
                     shell_quote(ASHLAR_HANG_PROGRAM) + " " + what);
  };
  const ShellResult size = ranks("size");
  EXPECT_EQ(size.code, 70) << size.err;
  EXPECT_THAT(size.err, AllOf(HasSubstr("rank 2 sent more than the 256 bytes that were expected"),
                              HasSubstr("the two ranks issued different operations")));
  expect_named(
      ranks("elsewhere"),
      "rank 2 of 4 on [^ ]+ is behind: its last operation on world is number [0-9]+, rank 0 has issued all_reduce sum "
      "fp32\\[64\\] on world, operation");
  if (long_form()) expect_named(ranks("missing"), "rank 2 of 4 on [^ ]+, for which others wait, is in starting");
}

// Four ranks on each core, stopped for 5 s now and then; in the long form a thousand steps, and the file system stalls
// for a minute while a checkpoint is written beside them.
TEST_F(Drill, AnOverloadedMachineIsNoHangSlow) {
  if (!long_form()) return;
  constexpr int kRanks = 8, kSteps = 1000;
  const Stall stall{.call = "sync", .path = ".partial/", .what = "sleep:60", .rank = 3, .once = "once"};
  const pid_t pid = run_.start(
      str_cat("launch -np ", kRanks, " train tiny.toml run.dir=r mesh.data=", kRanks, " train.global_batch=", kRanks,
              " train.micro_batch=1 train.eval_every=100 checkpoint.every=200 run.threads=1 run.hang_after=10 "
              "train.steps=",
              kSteps),
      "log", variables(stall));
  for (int i = 0; i < 6000 && run_.exact_metrics("r").empty(); ++i) usleep(5000);
  for (int i = 0; i < 5; ++i) {
    const pid_t stopped = run_.rank_process(i % kRanks);
    kill(stopped, SIGSTOP);
    sleep(5);
    kill(stopped, SIGCONT);
    sleep(1);
  }
  EXPECT_EQ(RunFixture::wait_for(pid), 0) << run_.read("log");
  const std::string log = run_.read("log");
  EXPECT_THAT(log, AllOf(HasSubstr("a file system stalls: [rank 3 of 8"), HasSubstr("the file system responds again"),
                         Not(HasSubstr("hang:"))));
  EXPECT_EQ(run_.metric("r", "loss").size(), static_cast<size_t>(kSteps));
}

TEST_F(Drill, WithoutFileLocksARunStillOwnsItsDirectory) {
  const Stall none{.call = "lock", .path = ".lock", .what = "nolock"};
  const ShellResult r = run(none, train("train.steps=3 schedule.warmup_steps=1"));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("warning: the file system of r has no file locks (No locks available); .lock.held"));
  const pid_t live = run_.start(train("run.dir=s train.steps=100000000 checkpoint.every=0"), "log");
  for (int i = 0; i < 5000 && run_.exact_metrics("s").empty(); ++i) usleep(2000);
  const ShellResult second = run_shell("cd " + shell_quote(run_.dir().string()) + "; " + preload(none) +
                                       shell_quote(ASHLAR_BINARY) + " " + train("run.dir=s"));
  kill(live, SIGKILL);
  RunFixture::wait_for(live);
  // One that locks and one that cannot do not see each other: only those of one kind do.
  EXPECT_EQ(second.code, 2) << second.out << second.err;
}

}  // namespace
}  // namespace ashlar::testing
