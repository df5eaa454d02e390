// What `ashlar launch` makes of signals: what mpirun is sent and when; the real program with stand-ins for mpirun, and
// with the real one while a job starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <random>

#include "core/base/strings.h"
#include "launch/commands/job_signals.h"
#include "tests/launch/run_fixture.h"
#include "tests/support/long_form.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_shell;
using testing::RunFixture;
using testing::shell_quote;
using testing::ShellResult;

const JobSignals::Clock::time_point kStart{100s};

TEST(JobSignals, AreSentAgainUntilARankAnswers) {
  JobSignals signals(true);
  EXPECT_EQ(signals.due(kStart), std::nullopt);
  EXPECT_EQ(signals.wait_ms(kStart), -1);
  EXPECT_THAT(signals.handle(SIGTERM, false, kStart), HasSubstr("SIGTERM: asking the ranks to save"));
  EXPECT_EQ(signals.due(kStart), SIGUSR1);
  EXPECT_EQ(signals.due(kStart), std::nullopt);
  EXPECT_EQ(signals.wait_ms(kStart), 250);
  EXPECT_EQ(signals.due(kStart + 249ms), std::nullopt);
  EXPECT_EQ(signals.due(kStart + 250ms), SIGUSR1);
  EXPECT_EQ(signals.due(kStart + 500ms), SIGUSR1);
  signals.acknowledged();
  EXPECT_EQ(signals.wait_ms(kStart + 500ms), -1);
  EXPECT_EQ(signals.due(kStart + 60s), std::nullopt);
  EXPECT_EQ(signals.exit_code(75), 76);
  EXPECT_EQ(signals.exit_code(6), 6) << "a save that failed is no end by a signal";
  EXPECT_EQ(signals.exit_code(0), 0);
}

TEST(JobSignals, ASecondOneAlwaysEnds) {
  for (const auto& [signal, code] :
       {std::pair{SIGTERM, 76}, std::pair{SIGINT, 77}, std::pair{SIGHUP, 76}, std::pair{SIGUSR1, 75}}) {
    JobSignals signals(true);
    signals.handle(signal, false, kStart);
    EXPECT_EQ(signals.due(kStart), SIGUSR1);
    EXPECT_THAT(signals.handle(signal, false, kStart + 1s), HasSubstr("mpirun ends the ranks within about a second"));
    EXPECT_EQ(signals.due(kStart + 1s), SIGTERM);
    EXPECT_EQ(signals.due(kStart + 2s), std::nullopt) << "SIGUSR1 is no longer sent";
    EXPECT_EQ(signals.due(kStart + 6s), SIGTERM);
    EXPECT_EQ(signals.due(kStart + 10s), std::nullopt);
    EXPECT_EQ(signals.due(kStart + 11s), SIGKILL);
    EXPECT_EQ(signals.due(kStart + 60s), std::nullopt);
    for (const int ended : {1, 5, 137, 143}) EXPECT_EQ(signals.exit_code(ended), code);
  }
  JobSignals impatient(true);
  for (int i = 0; i < 4; ++i) impatient.handle(SIGINT, false, kStart);
  EXPECT_EQ(impatient.due(kStart), SIGTERM);
  impatient.handle(SIGINT, false, kStart);
  EXPECT_EQ(impatient.due(kStart), SIGTERM);
  impatient.handle(SIGINT, false, kStart);
  EXPECT_EQ(impatient.due(kStart), SIGKILL);
}

TEST(JobSignals, AnMpirunWithoutRanksIsEnded) {
  JobSignals signals(true);
  EXPECT_FALSE(signals.unanswered(kStart)) << "nothing is asked";
  signals.handle(SIGINT, false, kStart);
  EXPECT_EQ(signals.due(kStart), SIGUSR1);
  EXPECT_FALSE(signals.unanswered(kStart + 4999ms));
  EXPECT_TRUE(signals.unanswered(kStart + 5s));
  signals.end_mpirun(kStart + 5s);
  EXPECT_FALSE(signals.unanswered(kStart + 6s));
  EXPECT_EQ(signals.due(kStart + 5s), SIGTERM);
  EXPECT_EQ(signals.due(kStart + 9s), std::nullopt);
  EXPECT_EQ(signals.due(kStart + 10s), SIGTERM);
  EXPECT_EQ(signals.due(kStart + 15s), SIGKILL);
  EXPECT_EQ(signals.exit_code(1), 77);
  JobSignals answered(true);
  answered.handle(SIGTERM, false, kStart);
  answered.acknowledged();
  EXPECT_FALSE(answered.unanswered(kStart + 60s)) << "a save may take its time";
}

TEST(JobSignals, WhatSavesNothingEndsAtOnce) {
  JobSignals signals(false);
  signals.handle(SIGUSR2, false, kStart);
  EXPECT_EQ(signals.due(kStart), SIGUSR2);
  EXPECT_FALSE(signals.ending());
  signals.handle(SIGINT, true, kStart);
  EXPECT_EQ(signals.due(kStart + 4s), std::nullopt) << "the terminal has told mpirun";
  EXPECT_EQ(signals.due(kStart + 5s), SIGTERM);
  EXPECT_EQ(signals.exit_code(1), 77);
}

class LaunchSignals : public ::testing::Test {
 protected:
  LaunchSignals() {
    fs::create_directory(scratch_.path() / "bin");
    signal(SIGHUP, SIG_DFL);  // ignored under nohup, and inherited
  }
  // Runs launch beside `rest`, which knows its $pid; mpirun is `body`.
  ShellResult run(const std::string& body, const std::string& words, const std::string& rest) {
    testing::write_program(scratch_.file("bin/mpirun"),
                           "[ \"$1\" = --version ] && echo 'mpirun (Open MPI) 4.1.4' && exit\n" + body);
    return run_shell("set -m; cd " + shell_quote(scratch_.path().string()) + "; PATH=$PWD/bin:$PATH; rm -f log; " +
                     shell_quote(ASHLAR_BINARY) + " launch -np 1 " + words +
                     " & pid=$!; up() { until grep -qs up log; " + "do sleep 0.02; done; }; " + rest);
  }
  testing::ScratchDir scratch_;
};

// mpirun loses what comes before its ranks are there.
TEST_F(LaunchSignals, ALostOneIsSentAgain) {
  const std::string loses =
      "n=0; trap 'n=$((n+1)); [ $n -lt 3 ] || { echo \"ashlar: SIGUSR1: stopping after this step\" >&2; sleep 1; echo "
      "got $n; exit 75; }' USR1\necho up; for i in $(seq 400); do sleep 0.05; done";
  const ShellResult r = run(loses, "train x >log 2>&1", "up; kill -TERM $pid; wait $pid; echo code $?; cat log");
  EXPECT_THAT(r.out, AllOf(HasSubstr("code 76\n"), HasSubstr("got 3\n"))) << "not a fourth, once it was answered";
}

TEST_F(LaunchSignals, TwoSigusr1Give75) {
  const ShellResult r =
      run("trap '' USR1; trap 'sleep 0.1; exit 1' TERM; echo up; for i in $(seq 400); do sleep 0.05; done",
          "train x >log 2>&1", "up; kill -USR1 $pid; sleep 0.1; kill -USR1 $pid; wait $pid; echo code $?");
  EXPECT_THAT(r.out, HasSubstr("code 75\n"));
}

TEST_F(LaunchSignals, AHangupLetsTheRunSaveButNotUnderNohup) {
  const std::string job = "trap 'exit 75' USR1; echo up; for i in $(seq 100); do sleep 0.05; done; exit 3";
  const std::string result = "; wait $pid; echo code $?; cat log";
  const ShellResult r = run(job, "train x >log 2>&1", "up; kill -HUP $pid" + result);
  EXPECT_THAT(r.out, AllOf(HasSubstr("code 76\n"), HasSubstr("ashlar: SIGHUP: asking the ranks to save")));
  const ShellResult kept = run_shell("cd " + shell_quote(scratch_.path().string()) +
                                     "; PATH=$PWD/bin:$PATH; rm -f log; trap '' HUP; " + shell_quote(ASHLAR_BINARY) +
                                     " launch -np 1 train x >log 2>&1 & pid=$!; until grep -qs up log; do sleep 0.02; "
                                     "done; kill -HUP $pid; sleep 0.3; kill -TERM $pid" +
                                     result);
  EXPECT_THAT(kept.out, AllOf(HasSubstr("code 76\n"), Not(HasSubstr("SIGHUP"))));
}

// Open MPI's mpirun outlives its ranks when its own writes fail (ulimit -f): before, only a second signal ended it.
TEST_F(LaunchSignals, AnMpirunThatHangsWithoutRanksEndsAtTheFirst) {
  mkfifo((scratch_.path() / "never").c_str(), 0600);
  const ShellResult r = run("trap '' USR1; trap 'exit 1' TERM; echo up; read -t 60 <>never; exit 3",
                            "train x >log 2>&1", "up; kill -TERM $pid; wait $pid; echo code $?; cat log");
  EXPECT_THAT(r.out, AllOf(HasSubstr("code 76\n"), HasSubstr("no rank runs on this machine and none has answered")));
}

// A stopped mpirun answers nothing; its job ends all the same.
TEST_F(LaunchSignals, AThirdAndAFourthEndWhatDoesNotAnswer) {
  const ShellResult r =
      run("trap '' USR1 TERM INT; echo up; for i in $(seq 400); do sleep 0.05; done", "train x >log 2>&1",
          "up; for i in 1 2 3 4; do kill -INT $pid; sleep 0.1; done; wait $pid; echo code $?; cat log");
  EXPECT_THAT(r.out, HasSubstr("code 77\n"));
}

// Ctrl-S, a pager that waits, a log collector that is stuck.
TEST_F(LaunchSignals, AnOutputThatNobodyReadsKeepsNone) {
  mkfifo((scratch_.path() / "pipe").c_str(), 0600);
  const ShellResult r = run(
      "trap 'exit 75' USR1; echo up >>log; while true; do printf '%1000s\\n' x x x x x x x x; done",
      "train x >pipe 2>err",
      "sleep 30 <pipe & up; until grep -q dropped err; do sleep 0.05; done; kill -TERM $pid; wait $pid; echo code $?; "
      "kill %2; cat err");
  EXPECT_THAT(r.out, AllOf(HasSubstr("code 76\n"), HasSubstr("its lines are dropped until it is read"),
                           HasSubstr(" lines were dropped\n")));
}

// A result is not dropped while its reader waits, but who is told to end does so.
TEST_F(LaunchSignals, AResultThatNobodyReadsEndsAtASignal) {
  mkfifo((scratch_.path() / "pipe").c_str(), 0600);
  const ShellResult r =
      run("trap 'exit 1' TERM; echo up >>log; yes \"$(printf %1000s x)\" & wait", "eval x >pipe 2>err",
          "sleep 30 <pipe & up; sleep 1; kill -TERM $pid; SECONDS=0; wait $pid; echo code $?; "
          "[ $SECONDS -lt 10 ] && echo soon; kill %2; cat err");
  EXPECT_THAT(r.out, AllOf(HasSubstr("code 76\nsoon\n"), Not(HasSubstr("dropped"))));
}

// Whatever moment of the start it meets, a stop signal ends the job.
TEST(LaunchedStart, NoStopSignalIsLost) {
  const RunFixture run;
  std::mt19937 random(7);
  const int trials = testing::long_form() ? 60 : 5;
  int held = 0;
  for (int i = 0; i < trials; ++i) {
    fs::remove_all(run.dir() / "r");
    fs::remove(run.dir() / "log");
    const pid_t pid = run.start(
        "launch -np 2 train tiny.toml run.dir=r mesh.data=2 train.steps=100000000 train.eval_every=0 "
        "checkpoint.every=0 "
        "log.every=1000",
        "log");
    // The line of mpirun is printed when the signals are taken; before, the signal's own action ends the program.
    for (int k = 0; k < 5000 && run.read("log").empty(); ++k) usleep(1000);
    usleep(static_cast<unsigned>(random() % 900'000));
    const bool twice = i % 3 == 2;
    const auto start = std::chrono::steady_clock::now();
    kill(pid, twice ? SIGUSR1 : SIGTERM);
    if (twice) usleep(50'000), kill(pid, SIGUSR1);
    const int code = RunFixture::wait_for(pid);
    const bool in_time = std::chrono::steady_clock::now() - start < 15s;
    held += in_time && code == (twice ? 75 : 76) ? 1 : 0;
    EXPECT_TRUE(in_time) << i;
    EXPECT_THAT(code, AnyOf(Eq(twice ? 75 : 76), Eq(twice ? 128 + SIGUSR1 : 128 + SIGTERM))) << i << run.read("log");
  }
  std::cout << held << " of " << trials << " stop signals during the start were held\n";
}

}  // namespace
}  // namespace ashlar::launch
