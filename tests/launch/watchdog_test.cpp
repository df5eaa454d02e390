// Ranks that die, fail, finish or are stopped, and what the others do: processes with recorders and watches, without
// MPI.
#include "launch/watch/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <thread>

#include "launch/watch/fatal_signals.h"
#include "launch/watch/signals.h"
#include "tests/support/full_pipe.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::watch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Judge, WhoReportsWhat) {
  using enum PeerState;
  const auto verdicts = [](const std::vector<PeerState>& ranks, const std::vector<NodeView>& before = {}) {
    std::string text;  // a letter a rank: stays, waits, leaves, reports a rank or a node
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r] != kAlive) continue;
      const Verdict v = judge(ranks, before, r);
      text += v.report        ? "R" + std::to_string(*v.report)
              : v.report_node ? "N" + std::to_string(*v.report_node)
              : v.wait        ? "W"
              : v.leave       ? "L"
                              : "-";
    }
    return text;
  };
  EXPECT_EQ(verdicts({kAlive, kAlive, kUnknown, kFinished}, {{kLeaving}, {kFinished}}), "--");
  EXPECT_EQ(verdicts({kAlive, kAlive, kLost}), "R2W");
  EXPECT_EQ(verdicts({kLost, kAlive, kLost}), "R0");
  EXPECT_EQ(verdicts({kLeaving, kAlive, kLost}), "L") << "rank 0 has reported it";
  EXPECT_EQ(verdicts({kFinished, kAlive, kLost}), "R2") << "who has finished watches no more";
  EXPECT_EQ(verdicts({kGone, kAlive, kAlive}), "LL");
  EXPECT_EQ(verdicts({kAlive, kAlive}, {{kLost}}), "N0W");
  EXPECT_EQ(verdicts({kAlive}, {{kLost}, {kLost}}), "N0") << "the nearest";
  EXPECT_EQ(verdicts({kAlive}, {{kAlive}, {kLost}}), "W") << "the nearer node reports";
  EXPECT_EQ(verdicts({kAlive}, {{kGone}, {kAlive}}), "L");
  EXPECT_EQ(verdicts({kAlive, kLost}, {{kLost}}), "R1") << "a death that is certain comes first";
  EXPECT_EQ(judge(std::vector{kAlive}, std::vector<NodeView>{{kLost, 4}, {kLost, 3}}, 0).lost, 7);
}

constexpr WatchTimes kTimes{.silence = 1500ms, .short_silence = 700ms, .error_wait = 300ms, .gather = 400ms};

// Processes as ranks. What they write to standard error is gathered.
class Ranks : public ::testing::Test {
 protected:
  struct Rank {
    int64_t rank;
    const SignalWatch& signals;
    FlightRecorder& recorder;
    Watchdog& watch;
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

  // A job of ranks on as many machines as `machines` names; returns when all are watching each other.
  void start(const std::vector<uint64_t>& machines, const Body& body) {
    *ready_ = 0;
    pages_.clear();
    listeners_.clear();
    const int64_t remote = nodes_of(machines).size() > 1 ? std::ssize(machines) : 0;
    for (const uint64_t machine : machines) {
      auto& pages = pages_[machine];
      if (pages == nullptr)
        pages = std::make_unique<NodePages>(std::count(machines.begin(), machines.end(), machine), remote);
      listeners_.push_back(std::make_unique<NodeListener>("lo"));
    }
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
  std::map<uint64_t, std::unique_ptr<NodePages>> pages_;
  std::vector<std::unique_ptr<NodeListener>> listeners_;
  HangOptions hang_;
  uint64_t cut_off_ = 0;       ///< machine
  bool nobody_reads_ = false;  ///< standard error, which is a pipe that is full

 private:
  int run(int64_t r, const std::vector<uint64_t>& machines, const Body& body) {
    std::freopen(scratch_.file("stderr").c_str(), "a", stderr);
    if (nobody_reads_) testing::make_full_pipe(STDERR_FILENO);
    alarm(30);  // a rank that nothing ends fails its test
    SignalWatch signals;
    signals.watch({.rank = r, .ranks = std::ssize(machines)});
    signals.enter(StopPoint::kStep);
    try {
      const RingPlan plan = plan_ring(machines, r);
      const uint64_t own_machine = machines[static_cast<size_t>(r)];
      NodePages& pages = *pages_.at(machines[static_cast<size_t>(r)]);
      std::vector<RingNode> next;
      for (size_t n = 0; n < plan.next.size(); ++n) {
        next.push_back({.node = plan.next[n], .host = "host", .ranks = {}});
        for (const int32_t rank : plan.next_ranks[n])
          next.back().ranks.push_back(listeners_[static_cast<size_t>(rank)]->card());
        const bool reached = (machines[static_cast<size_t>(plan.next[n])] == cut_off_) == (own_machine == cut_off_);
        for (NodeCard& card : next.back().ranks) card.port = reached ? card.port : 0;
      }
      for (size_t other = 0; other < listeners_.size(); ++other)
        if (other != static_cast<size_t>(r)) listeners_[other].reset();
      NodeRing ring({.job = 1,
                     .secret = {},
                     .rank = static_cast<int32_t>(r),
                     .listener = *listeners_[static_cast<size_t>(r)],
                     .next = std::move(next),
                     .previous = plan.previous,
                     .inboxes = pages.inboxes(),
                     .remote = pages.remote()});
      const auto place = std::find(plan.local.begin(), plan.local.end(), r) - plan.local.begin();
      FlightRecorder recorder(pages.pages()[static_cast<size_t>(place)],
                              {.rank = r,
                               .ranks = std::ssize(machines),
                               .host = "host" + std::to_string(machines[static_cast<size_t>(r)]),
                               .machine = machines[static_cast<size_t>(r)]},
                              nullptr);
      const FatalSignals fatal(recorder.page());
      std::vector<NodeRanks> nodes;
      for (const std::vector<int32_t>& local : nodes_of(machines))
        nodes.push_back({"host" + std::to_string(machines[static_cast<size_t>(local.front())]), local});
      Watchdog watch({.recorder = recorder,
                      .signals = signals,
                      .pages = pages,
                      .ring = plan.nodes > 1 ? &ring : nullptr,
                      .node = plan.node,
                      .hang = hang_,
                      .times = kTimes,
                      .nodes = nodes});
      recorder.step(17);
      recorder.operation({.kind = comm::OperationKind::kBarrier, .number = static_cast<uint64_t>(10 + r)}, "world");
      Rank rank{r, signals, recorder, watch};
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
            "ends here: run the same command again to resume from the last checkpoint\n");
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
  EXPECT_EQ(said(), "ashlar: SIGTERM: stopping after this step, then saving; a second signal exits at once\n");
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

// Beats are all that is seen of other nodes: a stopped one looks like one that is gone.
TEST_F(Ranks, ASilentMachineIsLost) {
  start({1, 1, 2, 2}, wait_for_ever);
  kill(pids_[2], SIGSTOP);
  kill(pids_[3], SIGSTOP);
  EXPECT_THAT(codes(2), ElementsAre(5, 5));
  EXPECT_GT(seconds_, 1.2);
  EXPECT_THAT(
      said(),
      AllOf(StartsWith("ashlar: [rank 2 of 4 on host2] fell silent (its machine or the network failed) at step 17"),
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

// Before: who had something to say waited for its reader for ever.
TEST_F(Ranks, AReaderThatStopsKeepsNobody) {
  nobody_reads_ = true;
  start({1, 1}, wait_for_ever);
  kill(pids_[1], SIGKILL);
  EXPECT_THAT(codes(), ElementsAre(5, -SIGKILL)) << "a lost rank";
  EXPECT_LT(seconds_, 4);
  start({1, 1}, [](Rank& r) { return r.rank == 0 ? (std::raise(SIGSEGV), 0) : wait_for_ever(r); });
  EXPECT_THAT(codes(), ElementsAre(-SIGSEGV, 5)) << "a crash";
  EXPECT_LT(seconds_, 4);
  hang_ = {.after_seconds = 0.5};
  start({1, 1}, wait_for_ever);
  EXPECT_THAT(codes(), ElementsAre(5, 5)) << "a hang";
  EXPECT_LT(seconds_, 6);
  hang_ = {};
  start({1}, wait_for_ever);
  kill(pids_[0], SIGTERM);
  usleep(100'000);
  kill(pids_[0], SIGTERM);
  EXPECT_THAT(codes(), ElementsAre(76)) << "a second signal";
  EXPECT_LT(seconds_, 2.5);
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

TEST_F(Ranks, AHangIsReportedByTheLowestAndEndsTheJob) {
  hang_ = {.after_seconds = 1};
  start({1, 1, 1}, [](Rank& rank) -> int {
    rank.recorder.enter(Phase::kBackward, 3);
    publish(rank.recorder.page().waiting, static_cast<uint32_t>(rank.rank != 1));
    return wait_for_ever(rank);
  });
  EXPECT_THAT(codes(), ElementsAre(5, 5, 5));
  EXPECT_LT(seconds_, 6);
  EXPECT_THAT(said(),
              AllOf(HasSubstr("ashlar: hang: no rank has made progress for 1 s (run.hang_after = 1 s"),
                    HasSubstr("ashlar: [rank 0 of 3 on host1] step 17, backward of micro-batch 3 for 1 s, waits for "
                              "other ranks, last operation barrier on world, operation 10, operations in total: 1"),
                    HasSubstr("ashlar: [rank 2 of 3 on host1] step 17"), HasSubstr("main thread: state S, in pause"),
                    HasSubstr("test_launch+0x"),
                    HasSubstr("ashlar: hang: rank 1 of 3 on host1, for which others wait, is in backward of "
                              "micro-batch 3\nashlar: hang: the job ends here")));
}

TEST_F(Ranks, AStoppedRankIsNamedAndWhoOnlyReportsGoesOn) {
  hang_ = {.after_seconds = 1, .stop = false};
  start({1, 1, 1}, [](Rank& rank) -> int {
    publish(rank.recorder.page().waiting, 1U);
    for (int i = 0; i < 400; ++i) usleep(10'000);  // who is asked for a stack wakes up
    rank.recorder.tick();
    return usleep(600'000), 0;
  });
  kill(pids_[0], SIGSTOP);  // the one that would report
  usleep(3'800'000);
  kill(pids_[0], SIGCONT);
  EXPECT_THAT(codes(), ElementsAre(0, 0, 0));
  EXPECT_THAT(said(), AllOf(HasSubstr("ashlar: hang: rank 0 of 3 on host1 is stopped (state T) in starting\n"),
                            HasSubstr("ashlar: hang: the ranks make progress again\n")));
}

// Each node alone sees nothing odd.
TEST_F(Ranks, TheOddOneOutIsNamedAcrossNodes) {
  hang_ = {.after_seconds = 1, .nodes = 3};
  start({1, 1, 2, 3}, [](Rank& rank) -> int {
    rank.recorder.operation({.kind = comm::OperationKind::kAllReduce,
                             .op = comm::ReduceOp::kSum,
                             .size = rank.rank == 3 ? 128 : 64,
                             .number = 50},
                            "world");
    publish(rank.recorder.page().waiting, 1U);
    return wait_for_ever(rank);
  });
  EXPECT_THAT(codes(), ElementsAre(5, 5, 5, 5));
  EXPECT_LT(seconds_, 1 + 10);
  const std::string text = said();
  EXPECT_THAT(text, AllOf(HasSubstr("ashlar: hang: rank 3 of 4 on host3 issued all_reduce sum fp32[128] on world, "
                                    "operation 50, where rank 0 issued all_reduce sum fp32[64] on world"),
                          HasSubstr("ashlar: [rank 2 of 4 on host2] step 17")));
  for (const std::string once : {"hang: rank 3 of 4", "the job ends here"})
    EXPECT_EQ(text.find(once), text.rfind(once)) << text;
  EXPECT_THAT(text, Not(HasSubstr("differs from the others")));
}

// Nothing reaches machine 4, and nothing comes from it: it is not lost, since it has never been heard.
TEST_F(Ranks, WhatIsNotHeardOfIsSaidAndNotWaitedForLong) {
  hang_ = {.after_seconds = 1, .nodes = 3};
  cut_off_ = 4;
  start({1, 2, 4}, [](Rank& rank) -> int {
    publish(rank.recorder.page().waiting, static_cast<uint32_t>(rank.rank != 1));
    return wait_for_ever(rank);
  });
  EXPECT_THAT(codes(), ElementsAre(5, 5, 5));
  EXPECT_LT(seconds_, 1 + 10);
  EXPECT_THAT(
      said(),
      AllOf(
          HasSubstr("ashlar: hang: rank 1 of 3 on host2, for which others wait, is in starting\n"
                    "ashlar: hang: no report from rank 2 on host4: their state is not compared\n"
                    "ashlar: hang: the job ends here"),
          HasSubstr(
              "ashlar: hang: no rank with known state differs from the others: all wait for each other\nashlar: hang: "
              "no report from rank 0 on host1; rank 1 on host2: their state")));
}

// Nor is a machine lost that is seen to beat, for longer than silence may last.
TEST_F(Ranks, WorkOnAnotherNodeIsNoHang) {
  hang_ = {.after_seconds = 1};
  start({1, 2, 3}, [](Rank& rank) -> int {
    for (int i = 0; i < 20; ++i) {
      if (rank.rank == 1) rank.recorder.tick();
      usleep(100'000);
    }
    return 0;
  });
  EXPECT_THAT(codes(), ElementsAre(0, 0, 0));
  EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace ashlar::watch
