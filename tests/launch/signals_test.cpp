// Signals are answered within a second, whatever the run is at; a second one leaves at once; nothing waits for a pipe.
#include "launch/watch/signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "core/base/strings.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/sanitizers.h"

namespace ashlar::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Signals : public ::testing::Test {
 protected:
  // Until the log of the run has `text`; seconds, or more than `limit`.
  double wait_for(const std::string& text, double limit) const {
    const auto start = Clock::now();
    while (run_.read("log").find(text) == std::string::npos && seconds_since(start) < limit) usleep(5000);
    return seconds_since(start);
  }
  pid_t begin(const std::string& words, const std::string& log) {
    started_ = run_.start(words, log);
    return started_;
  }
  int code_of(pid_t pid, double limit) {
    const auto start = Clock::now();
    const int code = RunFixture::wait_for(pid);
    started_ = 0;
    EXPECT_LT(seconds_since(start), limit);
    return code;
  }
  ~Signals() override {
    if (started_ == 0) return;  // else a test has failed before its end
    kill(started_, SIGTERM);
    usleep(1'500'000);
    kill(started_, SIGKILL);
    RunFixture::wait_for(started_);
  }
  const RunFixture run_;
  pid_t started_ = 0;
};

constexpr double kAnswer = 1.0, kLeave = 1.0;
// A step of half a minute or more.
const std::string kSlowStep =
    "train tiny.toml run.dir=r model.d_model=256 model.n_heads=4 model.d_ff=1024 model.n_layers=8 "
    "train.sequence_length=256 train.global_batch=512 train.micro_batch=1 train.eval_every=0 checkpoint.every=0";

TEST_F(Signals, ASlowFirstStepAnswersAndASecondSignalLeavesWithItsCode) {
  const std::pair<int, int> kinds[] = {{SIGINT, 77}, {SIGUSR1, 75}};
  for (const auto& [signal, code] : kinds) {
    fs::remove(run_.dir() / "log");
    const pid_t pid = begin(kSlowStep, "log");
    ASSERT_LT(wait_for("mfu is relative", 30), 30) << run_.read("log");
    usleep(300'000);  // into the step
    kill(pid, SIGTERM);
    EXPECT_LT(wait_for("ashlar: SIGTERM: stopping after this step, then saving; a second signal exits at once", 9),
              kAnswer)
        << run_.read("log");
    kill(pid, signal);
    EXPECT_EQ(code_of(pid, kLeave), code);
    EXPECT_THAT(run_.read("log"), HasSubstr(": exiting at once; steps since the last checkpoint are lost"));
  }
}

TEST_F(Signals, RanksAnswerOnceAndLeaveTogether) {
  const pid_t pid = begin("launch -np 2 " + kSlowStep + " mesh.data=2", "log");
  ASSERT_LT(wait_for("mfu is relative", 30), 30) << run_.read("log");
  usleep(500'000);
  kill(pid, SIGUSR1);
  EXPECT_LT(wait_for("ashlar: SIGUSR1: stopping after this step", 9), kAnswer) << run_.read("log");
  usleep(500'000);
  kill(pid, SIGUSR1);
  EXPECT_EQ(code_of(pid, 3), 75) << "mpirun itself needs a moment";
  const std::string log = run_.read("log");
  EXPECT_EQ(log.find("stopping after"), log.rfind("stopping after")) << "rank 0 answers for all: " << log;
  EXPECT_THAT(log, Not(HasSubstr("died")));
}

TEST_F(Signals, OneRankThatIsToldTellsTheOthersAfterTheStep) {
  const pid_t pid = begin(
      "launch -np 2 train tiny.toml run.dir=r mesh.data=2 train.steps=1000000 train.eval_every=0 checkpoint.every=0",
      "log");
  ASSERT_LT(wait_for("step       5/", 30), 30) << run_.read("log");
  kill(run_.rank_process(1), SIGTERM);
  EXPECT_EQ(code_of(pid, 5), 76) << run_.read("log");
  EXPECT_THAT(run_.read("log"),
              AllOf(HasSubstr(" SIGTERM: stopping after this step"), HasSubstr("saved r/checkpoints")));
}

TEST_F(Signals, AStartLeavesWithTheFirst) {
  // Before, while and after it opens its data: never later than a second.
  for (const int ms : {0, 5, 15, 30, 60}) {
    fs::remove_all(run_.dir() / "r");
    const pid_t pid = begin(kSlowStep, "log");
    usleep(40'000 + static_cast<unsigned>(ms) * 1000);
    kill(pid, SIGTERM);
    usleep(100'000);
    kill(pid, SIGTERM);
    const int code = code_of(pid, kLeave);
    EXPECT_TRUE(code == 76 || code == 128 + SIGTERM) << code << " (before main the signal's own action)";
  }
}

TEST_F(Signals, ALongValidationEndsAtABatchAndIsDoneLater) {
  const std::string words =
      "train tiny.toml run.dir=r train.steps=4 train.eval_every=2 schedule.warmup_steps=1 train.micro_batch=1 "
      "checkpoint.every=0 train.global_batch=1 train.eval_sequences=";
  // One validation of all 300 sequences that there are, slow enough to be met by the signal.
  const std::string layers = testing::under_address_sanitizer() ? "3" : "10";
  const std::string slow = words + "0 model.d_model=128 model.n_heads=4 model.d_ff=512 model.n_layers=" + layers;
  const pid_t pid = begin(slow, "log");
  ASSERT_LT(wait_for("step 2/4", 60), 60) << run_.read("log");
  kill(pid, SIGTERM);
  EXPECT_LT(wait_for("SIGTERM: stopping after", 9), kAnswer);
  EXPECT_EQ(code_of(pid, 20), 76) << run_.read("log");
  EXPECT_THAT(run_.read("log"), HasSubstr("the validation was interrupted; its loss is not written"));
  EXPECT_TRUE(run_.metric("r", "val_loss").empty());
  EXPECT_EQ(run_.metric("r", "loss").size(), 2u);
  const ShellResult again = run_.ashlar(slow);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(run_.metric("r", "val_loss").size(), 2u) << "what was cut short comes first";
}

// The saver's file system hangs; the run has a checkpoint from before.
class SignalsInASave : public Signals {
 protected:
  void SetUp() override {
    if (testing::under_address_sanitizer())
      GTEST_SKIP() << "the address sanitizer wants to be loaded before the library that makes the file system hang";
    ASSERT_EQ(run_.ashlar(kTrain + "train.steps=4").code, 0);
    before_ = run_.exact_metrics("r");
  }
  // A signal in the middle of an endless run, and its last save has begun.
  pid_t stop_with_a_save(const std::string& stall) {
    const pid_t pid = run_.start(kTrain + "train.steps=100000000", "log",
                                 preloading(ASHLAR_STALL_LIBRARY) +
                                     " STALL_CALL=sync STALL_PATH=.partial/ STALL_DO=" + stall + " STALL_ONCE=once");
    started_ = pid;
    EXPECT_LT(wait_for("step        10/", 30), 30) << run_.read("log");
    kill(pid, SIGUSR1);
    for (int i = 0; i < 2000 && !fs::exists(run_.dir() / "once"); ++i) usleep(5000);
    usleep(100'000);
    return pid;
  }
  // Nothing lost: what was there before is what the next one continues from.
  void expect_to_continue_from(const std::string& where, int64_t steps) {
    const ShellResult r = run_.ashlar(kTrain + str_cat("train.steps=", steps + 2));
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("continuing from r/checkpoints/" + where)) << r.err;
    const auto rows = run_.exact_metrics("r");
    EXPECT_EQ(run_.metric("r", "loss").size(), static_cast<size_t>(steps) + 2);
    ASSERT_GE(rows.size(), before_.size());
    EXPECT_TRUE(std::equal(before_.begin(), before_.end(), rows.begin()));
  }
  const std::string kTrain =
      "train tiny.toml run.dir=r train.eval_every=0 checkpoint.every=0 schedule.warmup_steps=1 schedule.decay_steps=9 ";
  std::vector<std::string> before_;
};

TEST_F(SignalsInASave, TheSecondLeavesWithItsCodeAndTheCheckpointOfBefore) {
  const pid_t pid = stop_with_a_save("sleep:60");
  kill(pid, SIGTERM);
  EXPECT_EQ(code_of(pid, kLeave), 76);
  EXPECT_THAT(run_.read("log"), AllOf(HasSubstr("SIGUSR1: stopping after this step, then saving"),
                                      HasSubstr("SIGTERM: exiting at once; steps since the last checkpoint are lost")));
  expect_to_continue_from("step-00000004", 4);
}

TEST_F(SignalsInASave, TheFirstWaitsForIt) {
  const pid_t pid = run_.start(
      kTrain + "train.steps=8", "log",
      preloading(ASHLAR_STALL_LIBRARY) + " STALL_CALL=sync STALL_PATH=.partial/ STALL_DO=sleep:3 STALL_ONCE=once");
  started_ = pid;
  for (int i = 0; i < 2000 && !fs::exists(run_.dir() / "once"); ++i) usleep(5000);
  kill(pid, SIGTERM);
  EXPECT_LT(wait_for("ashlar: SIGTERM: stopping when this checkpoint is saved; a second signal exits at once", 9),
            kAnswer);
  EXPECT_EQ(code_of(pid, 20), 0) << "the run was over: " << run_.read("log");
  EXPECT_THAT(run_.read("log"), HasSubstr("saved r/checkpoints/step-00000008"));
  expect_to_continue_from("step-00000008", 8);
}

TEST_F(Signals, TheSecondLeavesAValidationWithItsCode) {
  const std::string words =
      "train tiny.toml run.dir=r train.eval_every=2 schedule.warmup_steps=0 schedule.decay_steps=9 train.micro_batch=1 "
      "checkpoint.every=0 train.global_batch=1 model.n_layers=10 model.d_model=256 train.sequence_length=64 "
      "model.n_heads=4 model.d_ff=1024 ";
  ASSERT_EQ(run_.ashlar(words + "train.steps=1 train.eval_sequences=1").code, 0);
  const size_t validations = run_.metric("r", "val_loss").size();
  const pid_t pid = begin(words + "train.steps=4 train.eval_sequences=0", "log");
  ASSERT_LT(wait_for("step 2/4", 60), 60) << run_.read("log");
  kill(pid, SIGTERM);
  ASSERT_LT(wait_for("SIGTERM: stopping after", 9), kAnswer);
  kill(pid, SIGINT);
  EXPECT_EQ(code_of(pid, kLeave), 77) << run_.read("log");
  EXPECT_THAT(run_.read("log"), HasSubstr("SIGINT: exiting at once"));
  EXPECT_EQ(run_.metric("r", "val_loss").size(), validations);
  const ShellResult r = run_.ashlar("eval r --sequences 1");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("r/checkpoints/step-00000001")) << "what was there before is";
}

TEST_F(Signals, NothingWaitsForAPipe) {
  const auto refused = [&](const std::string& pipe, const std::string& words, const std::string& said) {
    fs::remove(run_.dir() / pipe);
    ASSERT_EQ(mkfifo((run_.dir() / pipe).c_str(), 0600), 0) << pipe;
    const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + " && timeout 5 " +
                                    shell_quote(ASHLAR_BINARY) + " " + words);
    EXPECT_EQ(r.code, 2) << words << r.err;
    EXPECT_THAT(r.err, HasSubstr(said)) << words;
    fs::remove(run_.dir() / pipe);
  };
  refused("c.toml", "train c.toml", "ashlar: [config] c.toml: expected a regular file, got a pipe; write its content");
  refused("c.toml", "params c.toml", "expected a regular file, got a pipe");
  refused("hosts", "launch -np 2 --hostfile hosts train tiny.toml", "[launch] hosts: expected a regular file");
  fs::create_directory(run_.dir() / "d");
  refused("d/manifest.json", "train tiny.toml data.path=d", "expected a regular file");
  fs::create_directory(run_.dir() / "r");
  const std::string train = "train tiny.toml train.steps=2 schedule.warmup_steps=1 run.dir=r";
  refused("r/metrics.jsonl", train, "[metrics] r/metrics.jsonl: expected a regular file");
  refused("r/.lock", train, "r/.lock, which is not a regular file");
  const ShellResult r = run_shell("cd " + shell_quote(run_.dir().string()) + " && timeout 5 " +
                                  shell_quote(ASHLAR_BINARY) + " train <(cat tiny.toml) run.dir=s");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.err, HasSubstr("expected a regular file, got a pipe"));
}

}  // namespace
}  // namespace ashlar::testing
