// Ranks that die, fail, finish or are stopped, and what the others do: processes with boards and watches, without MPI.
#include "launch/training/peer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <thread>

#include "launch/training/fatal_signals.h"
#include "launch/training/signals.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::training {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Judge, WhoReportsWhat) {
  using enum PeerState;
  const auto verdicts = [](const std::vector<PeerView>& ranks) {
    std::string text;  // a letter a rank: stays, waits, leaves, reports
    for (int64_t r = 0; r < std::ssize(ranks); ++r) {
      if (ranks[static_cast<size_t>(r)].state != kAlive) continue;
      const Verdict v = judge(ranks, r);
      text += v.report ? "R" + std::to_string(*v.report) : v.wait ? "W" : v.leave ? "L" : "-";
    }
    return text;
  };
  EXPECT_EQ(verdicts({{kAlive, 1}, {kAlive, 1}, {kUnknown, 0}, {kFinished, 1}, {kLeaving, 2}}), "--");
  EXPECT_EQ(verdicts({{kAlive, 1}, {kAlive, 1}, {kLost, 1}}), "R2W");
  EXPECT_EQ(verdicts({{kLost, 1}, {kAlive, 1}, {kLost, 1}}), "R0");
  EXPECT_EQ(verdicts({{kAlive, 1}, {kAlive, 2}, {kLost, 2}, {kAlive, 2}}), "WR2W") << "its own machine knows first";
  EXPECT_EQ(verdicts({{kAlive, 1}, {kAlive, 1}, {kLost, 2}, {kLost, 2}}), "R2W") << "a whole machine is lost";
  EXPECT_EQ(verdicts({{kAlive, 1}, {kLeaving, 2}, {kLost, 2}}), "L") << "rank 1 has reported it";
  EXPECT_EQ(verdicts({{kAlive, 1}, {kFinished, 2}, {kLost, 2}}), "R2") << "who has finished watches no more";
  EXPECT_EQ(verdicts({{kAlive, 1}, {kGone, 1}, {kAlive, 1}}), "LL");
}

constexpr WatchTimes kTimes{.silence = 1500ms, .short_silence = 700ms, .farewell = 300ms};

// Processes as ranks. What they write to standard error is gathered.
class Ranks : public ::testing::Test {
 protected:
  struct Rank {
    int64_t rank;
    const SignalWatch& signals;
    RankBoard& board;
    PeerWatch& watch;
  };
  using Body = std::function<int(Rank&)>;

  Ranks() {
    void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ready_ = new (memory) std::atomic<int>(0);
  }
  ~Ranks() override {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    munmap(ready_, sizeof(*ready_));
  }

  // A job of ranks on as many machines as `machines` names; returns when all are watching each other. The pages that an
  // earlier job left in the directory are none of its ranks.
  void start(const std::vector<uint64_t>& machines, const Body& body) {
    *ready_ = 0;
    ++job_;
    for (int64_t r = 0; r < std::ssize(machines); ++r) {
      const pid_t pid = fork();
      if (pid == 0) _exit(run(r, machines, body));
      pids_.push_back(pid);
    }
    while (*ready_ < std::ssize(machines)) usleep(1000);
    if (machines.front() != machines.back()) usleep(800'000);  // other machines have been seen to live
    begun_ = std::chrono::steady_clock::now();
  }
  // Exit codes of the first `count` ranks in order; -signal for those that one ended.
  std::vector<int> codes(size_t count = 99) {
    std::vector<int> all;
    while (!pids_.empty() && all.size() < count) {
      int status = 0;
      waitpid(pids_.front(), &status, 0);
      pids_.erase(pids_.begin());
      all.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
    return all;
  }
  std::string said() const {
    std::ifstream file(scratch_.file("stderr"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int64_t lines() const {
    const std::string text = said();
    return std::count(text.begin(), text.end(), '\n');
  }

  static int wait_for_ever(Rank& /*rank*/) {
    while (true) pause();
  }

  testing::ScratchDir scratch_;
  std::vector<pid_t> pids_;
  std::atomic<int>* ready_;
  std::chrono::steady_clock::time_point begun_;
  double seconds_ = 0;
  uint64_t job_ = 0;

 private:
  int run(int64_t r, const std::vector<uint64_t>& machines, const Body& body) {
    std::freopen(scratch_.file("stderr").c_str(), "a", stderr);
    alarm(30);  // a rank that nothing ends fails its test
    SignalWatch signals;
    signals.watch({.rank = r, .ranks = std::ssize(machines)});
    signals.enter(StopPoint::kStep);
    try {
      RankBoard board(scratch_.path(),
                      {.rank = r,
                       .ranks = std::ssize(machines),
                       .host = "host" + std::to_string(machines[static_cast<size_t>(r)]),
                       .job = job_,
                       .machine = machines[static_cast<size_t>(r)]},
                      nullptr);
      const FatalSignals fatal(board.page());
      PeerWatch watch(board, signals, kTimes);
      board.step(17);
      board.operation({.kind = comm::OperationKind::kBarrier, .number = static_cast<uint64_t>(10 + r)}, "world");
      Rank rank{r, signals, board, watch};
      ++*ready_;
      while (*ready_ < std::ssize(machines)) usleep(1000);
      return body(rank);
    } catch (const std::runtime_error&) {
      usleep(50'000);  // the others look meanwhile
      return 2;
    }
  }
};

TEST_F(Ranks, AKilledRankIsNamedOnceAndTheOthersLeave) {
  start({1, 1, 1, 1}, wait_for_ever);
  kill(pids_[2], SIGKILL);
  EXPECT_THAT(codes(), ElementsAre(5, 5, -SIGKILL, 5));
  EXPECT_EQ(said(),
            "ashlar: [rank 2 of 4 on host1] died at step 17, last operation barrier on world, operation 12; the job "
            "ends here: the same command continues from the last checkpoint\n");
  EXPECT_LT(seconds_, 5);
}

TEST_F(Ranks, TheOthersStayUntilItIsSaidButNotForEver) {
  start({1, 1, 1}, wait_for_ever);
  kill(pids_[0], SIGSTOP);  // the one to report
  kill(pids_[2], SIGKILL);
  std::swap(pids_[0], pids_[1]);
  EXPECT_THAT(codes(1), ElementsAre(5));
  EXPECT_GT(seconds_, 0.25) << "a farewell, less the time of the last look";
  EXPECT_LT(seconds_, 1.5);
  kill(pids_[0], SIGCONT);
  EXPECT_THAT(codes(), ElementsAre(5, -SIGKILL));
  EXPECT_EQ(lines(), 1);
}

TEST_F(Ranks, AFailedMessageWaitsForTheNameOfTheLost) {
  const Body fail = [](Rank& rank) -> int {
    return rank.rank == 0 ? (rank.watch.find_lost(), 3) : wait_for_ever(rank);
  };
  start({1, 1}, fail);
  usleep(200'000);
  kill(pids_[1], SIGKILL);
  EXPECT_THAT(codes(), ElementsAre(5, -SIGKILL));
  EXPECT_THAT(said(), StartsWith("ashlar: [rank 1 of 2 on host1] died"));
  start({1, 1}, fail);
  EXPECT_THAT(codes(1), ElementsAre(3)) << "nobody is lost: the message's own error is said";
}

TEST_F(Ranks, AnExitWithoutGoodbyeIsADeath) {
  start({1, 1}, [](Rank& rank) -> int { return rank.rank == 0 ? (_exit(0), 0) : wait_for_ever(rank); });
  EXPECT_THAT(codes(), ElementsAre(0, 5));
  EXPECT_THAT(said(), StartsWith("ashlar: [rank 0 of 2 on host1] died"));
  EXPECT_EQ(lines(), 1);
}

TEST_F(Ranks, AHealthyStopIsAnsweredOnce) {
  start({1, 1, 2}, [](Rank& rank) {
    while (!rank.signals.pending()) usleep(1000);
    usleep(500'000);  // until the end of a step
    return static_cast<int>(rank.signals.pending()->code);
  });
  for (const pid_t pid : pids_) kill(pid, SIGTERM);
  EXPECT_THAT(codes(), ElementsAre(76, 76, 76));
  EXPECT_EQ(said(), "ashlar: SIGTERM: stopping after this step, then saving; a second signal leaves at once\n");
}

TEST_F(Ranks, OneThatHasFinishedIsNotMissed) {
  start({1, 1, 2}, [](Rank& rank) {
    if (rank.rank > 0) usleep(1'000'000);
    return 0;
  });
  EXPECT_THAT(codes(), ElementsAre(0, 0, 0));
  EXPECT_EQ(said(), "");
}

TEST_F(Ranks, OneThatIsStoppedOnThisMachineIsNotMissed) {
  start({1, 1}, [](Rank& /*rank*/) { return usleep(1'500'000), 0; });
  kill(pids_[1], SIGSTOP);
  usleep(800'000);
  kill(pids_[1], SIGCONT);
  EXPECT_THAT(codes(), ElementsAre(0, 0));
  EXPECT_EQ(said(), "");
}

// Their file is all that is seen of ranks on other machines: a stopped one looks like one whose machine is gone.
TEST_F(Ranks, ASilentMachineIsLost) {
  start({1, 1, 2, 2}, wait_for_ever);
  kill(pids_[2], SIGSTOP);
  kill(pids_[3], SIGSTOP);
  EXPECT_THAT(codes(2), ElementsAre(5, 5));
  EXPECT_GT(seconds_, 1.2);
  EXPECT_THAT(said(),
              AllOf(StartsWith("ashlar: [rank 2 of 4 on host2] fell silent (its machine or the network) at step 17"),
                    HasSubstr("operation 12; 1 more lost; the job ends here")));
  EXPECT_EQ(lines(), 1);
}

TEST_F(Ranks, ASilentMachineIsLostSoonerWhenMpirunHasNoticed) {
  start({1, 2}, wait_for_ever);
  kill(pids_[1], SIGSTOP);
  kill(pids_[0], SIGTERM);
  EXPECT_THAT(codes(1), ElementsAre(5));
  EXPECT_LT(seconds_, 1.2) << "mpirun kills about a second later";
  EXPECT_THAT(said(), HasSubstr("[rank 1 of 2 on host2] fell silent"));
}

TEST_F(Ranks, RanksOnTwoMachinesSeeEachOtherBeat) {
  start({1, 2}, [](Rank& /*rank*/) { return usleep(2'200'000), 0; });
  EXPECT_THAT(codes(), ElementsAre(0, 0));
  EXPECT_EQ(said(), "");
}

TEST_F(Ranks, ACrashSaysItselfWhatItWas) {
  for (const bool in_main : {true, false}) {
    std::filesystem::remove(scratch_.file("stderr"));
    *ready_ = 0;
    start({1, 1, 1}, [&](Rank& rank) -> int {
      if (rank.rank != 1) return wait_for_ever(rank);
      const auto crash = [] { raise(SIGSEGV); };
      if (!in_main) std::thread(crash).join();
      crash();
      return 0;
    });
    EXPECT_THAT(codes(), ElementsAre(5, -SIGSEGV, 5));
    EXPECT_EQ(
        said(),
        "ashlar: [rank 1 of 3 on host1] signal SIGSEGV at step 17, last operation barrier on world, operation 11\n");
  }
}

TEST_F(Ranks, AFailureIsReportedByTheRankItself) {
  start({1, 1, 2}, [](Rank& rank) -> int {
    if (rank.rank == 1) throw std::runtime_error("an error that main prints");
    return wait_for_ever(rank);
  });
  EXPECT_THAT(codes(), ElementsAre(5, 2, 5));
  EXPECT_EQ(said(), "");
}

TEST_F(Ranks, AnErrorOfAllKeepsItsCode) {
  start({1, 1, 1}, [](Rank& rank) -> int {
    usleep(static_cast<unsigned>(100'000 * rank.rank));
    throw std::runtime_error("the same error on all ranks");
  });
  EXPECT_THAT(codes(), ElementsAre(2, 2, 2));
  EXPECT_EQ(said(), "");
}

TEST_F(Ranks, AnEarlierJobDoesNotConfuse) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      const RankBoard board(scratch_.path(), {.rank = rank, .ranks = 4, .host = "old", .job = 6}, nullptr);
      _exit(0);  // without a word
    }
    waitpid(pid, nullptr, 0);
  }
  start({1, 1}, [](Rank& rank) {
    if (rank.rank == 0) return usleep(300'000), 0;
    return usleep(600'000), 0;
  });
  EXPECT_THAT(codes(), ElementsAre(0, 0));
  EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace ashlar::training
