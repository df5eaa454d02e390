// What a rank shows of itself, and what others read.
#include "launch/watch/flight_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "launch/watch/file_stall.h"
#include "launch/watch/node_pages.h"
#include "launch/watch/rank_watch.h"
#include "launch/watch/thread_watch.h"
#include "parallel/comm/self_comm.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::watch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Board : public ::testing::Test {
 protected:
  RankPage& page(size_t place = 0) { return pages_.pages()[place]; }
  std::string text(size_t place = 0) {
    std::array<char, 512> memory;
    return std::string(describe(page(place), "died", memory));
  }
  static RankInfo info(int64_t rank) { return {.rank = rank, .ranks = 4, .host = "hostb", .job = 7}; }
  NodePages pages_{3};
};

TEST_F(Board, ShowsStepAndOperation) {
  FlightRecorder recorder(page(), info(2), nullptr);
  EXPECT_EQ(text(), "[rank 2 of 4 on hostb] died before the first step, last operation nothing");
  recorder.step(kNoSteps);  // as `eval` has none
  EXPECT_EQ(text(), "[rank 2 of 4 on hostb] died, last operation nothing");
  recorder.enter(Phase::kLoading);
  EXPECT_EQ(text(), "[rank 2 of 4 on hostb] died while loading a checkpoint, last operation nothing");
  recorder.enter(Phase::kValidating, 7);
  EXPECT_EQ(text(), "[rank 2 of 4 on hostb] died while validating, batch 7, last operation nothing");
  recorder.enter(Phase::kGenerating, 12);
  EXPECT_THAT(text(), HasSubstr(" died while generating, token 12, last"));
  recorder.step(17);
  recorder.operation({.kind = comm::OperationKind::kAllReduce, .op = comm::ReduceOp::kSum, .size = 4096, .number = 12},
                     "tensor");
  EXPECT_EQ(text(),
            "[rank 2 of 4 on hostb] died at step 17, last operation all_reduce sum fp32[4096] on tensor, operation 12");
  recorder.operation({.kind = comm::OperationKind::kBarrier}, std::string(1000, 'x'));
  EXPECT_THAT(text(), HasSubstr("last operation barrier on xxx"));
  EXPECT_LT(text().size(), 300u);
  EXPECT_EQ(page().operations, 2u);
  EXPECT_EQ(page().recent[0].info.size, 4096) << "the one before stays";
}

TEST_F(Board, FollowsTheEngine) {
  comm::SelfComm comm("self");
  SynchronousStream stream;
  {
    FlightRecorder recorder(page(), info(0), comm.engine());
    comm.barrier(stream).wait();
    EXPECT_THAT(text(), HasSubstr("barrier on self, operation 0"));
  }
  comm.barrier(stream).wait();  // nobody is told any more
  EXPECT_THAT(text(), HasSubstr("operation 0"));
}

TEST_F(Board, WhatGetsDoneIsSeenAtTheNextBeat) {
  FlightRecorder recorder(page(), info(0), nullptr);
  recorder.beat();
  publish(page().progress_ms, int64_t{0});
  recorder.beat();
  EXPECT_EQ(page().progress_ms, 0) << "nothing has been done";
  recorder.enter(Phase::kForward, 3);
  recorder.beat();
  EXPECT_GT(page().progress_ms, 0);
  EXPECT_EQ(page().micro_batch, 3);
  recorder.step_took(120.5);
  recorder.step_took(80);
  EXPECT_EQ(page().longest_step_ms, 120);
}

TEST_F(Board, EndsFinishedOrFailed) {
  { FlightRecorder recorder(page(0), info(0), nullptr); }
  EXPECT_EQ(page(0).state, RankState::kFinished);
  try {
    const FlightRecorder recorder(page(1), info(1), nullptr);
    EXPECT_EQ(page(1).state, RankState::kRunning);
    throw std::runtime_error("on its way");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(page(1).state, RankState::kFailed);
  {
    FlightRecorder recorder(page(2), info(2), nullptr);
    recorder.leave(RankState::kCrashed);
  }
  EXPECT_EQ(page(2).state, RankState::kCrashed) << "the first word stays";
}

TEST_F(Board, PagesAreSharedWithoutAFile) {
  const pid_t child = fork();
  if (child == 0) {
    const auto shared = NodePages::open(getppid(), pages_.fd(), 3);
    if (shared == nullptr) _exit(1);
    FlightRecorder recorder(shared->pages()[2], info(2), nullptr);
    recorder.step(99);
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(page(2).step, 99);
  EXPECT_EQ(NodePages::open(getpid(), pages_.fd(), 2), nullptr) << "another number of ranks";
  EXPECT_EQ(NodePages::open(getpid(), 1000, 3), nullptr);
}

TEST_F(Board, KnowsProcessesThatEndedOrAreOthers) {
  const pid_t child = fork();
  if (child == 0) {
    const FlightRecorder recorder(page(), info(3), nullptr);
    pause();
  }
  while (look_at(page().pid) == 0) usleep(1000);
  EXPECT_TRUE(process_lives(page()));
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_TRUE(process_lives(page())) << "a debugger may hold it";
  EXPECT_EQ(threads_of(child).front().state, 'T');
  RankPage reused = page();
  reused.started -= 1;
  EXPECT_FALSE(process_lives(reused)) << "another process with its number";
  kill(child, SIGKILL);
  siginfo_t ended;
  waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_FALSE(process_lives(page())) << "nobody has asked for its code yet";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_lives(page()));
}

TEST_F(Board, ARankAloneIsWatchedToo) {
  comm::SelfComm alone("world");
  comm::ControlPlane ranks(alone, "control");
  SignalWatch signals;
  const auto watch = watch_ranks(ranks, signals);
  ASSERT_NE(watch, nullptr);
  watch->flight_recorder().step(3);
  EXPECT_EQ(watch->flight_recorder().page().step, 3);
}

TEST_F(Board, JobsDiffer) { EXPECT_NE(new_job(), new_job()); }

// A thread that waits for a file, with a name of ours: a pipe that has one.
class Threads : public ::testing::Test {
 protected:
  Threads() : path_(scratch_.path() / "shard") {
    if (mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("no pipe");
    end_ = open(path_.c_str(), O_RDWR);
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "ashlar-reader");
      id_ = gettid();
      char byte = 0;
      [[maybe_unused]] const ssize_t got = read(end_, &byte, 1);
    });
    while (id_ == 0) usleep(1000);
    usleep(20'000);
  }
  ~Threads() override {
    let_go();
    close(end_);
  }
  void let_go() {
    if (!thread_.joinable()) return;
    [[maybe_unused]] const ssize_t put = write(end_, "x", 1);
    thread_.join();
  }
  const testing::ScratchDir scratch_;
  const std::filesystem::path path_;
  int end_ = -1;
  std::atomic<pid_t> id_ = 0;
  std::thread thread_;
};

TEST_F(Threads, AreNamedWithStateAndCall) {
  const std::vector<ThreadSnapshot> threads = threads_of(getpid());
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(threads[0].name, "main");
  EXPECT_EQ(threads[1].name, "reader");
  EXPECT_THAT(describe(threads[1]), StartsWith("state S, in read of " + path_.string()));
  EXPECT_EQ(threads[1].file, path_.string());
  EXPECT_EQ(threads[0].file, "") << "what it reads of /proc is no file that could stall";
}

TEST_F(Threads, ACallThatLastsIsAStall) {
  FileStallWatch watch;
  const int64_t start = machine_ms();
  EXPECT_EQ(watch.look(start).since_ms, 0) << "seen once";
  EXPECT_EQ(watch.look(start + 1500).since_ms, 0) << "may just be slow";
  const FileStall& stall = watch.look(start + 62'500);
  EXPECT_EQ(stall.since_ms, start);
  EXPECT_EQ(describe_stall(stall, start + 62'500), "its reader thread is in read of " + path_.string() + " for 62 s");

  std::vector<RankPage> pages(3);
  for (int r = 0; r < 3; ++r) {
    pages[static_cast<size_t>(r)] = {.rank = r, .ranks = 3, .pid = 1, .heartbeat_ms = start + 62'500};
    std::string("node7").copy(pages[static_cast<size_t>(r)].host.data(), 10);
  }
  EXPECT_EQ(describe_stalls(pages, start + 62'500, 0), "");
  pages[1].stall = pages[2].stall = stall;
  EXPECT_THAT(describe_stalls(pages, start + 62'500, 10'000),
              AllOf(StartsWith("[rank 1 of 3 on node7] its reader thread is in read of "),
                    HasSubstr(" for 62 s; 1 more on this machine wait too")));
  EXPECT_EQ(describe_stalls(pages, start + 62'500, 63'000), "");
  EXPECT_EQ(stall_of(pages[1], start + 65'500), nullptr) << "who is stopped itself cannot tell that it is over";

  let_go();
  EXPECT_EQ(watch.look(start + 63'500).since_ms, 0);
}

// What a thread reads in a signal's handler, as unwind tables that are not in memory, is no way out of its call.
TEST_F(Threads, AStallOutlastsASignal) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {
    char text[64];
    const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    [[maybe_unused]] const ssize_t got = read(fd, text, sizeof(text));
    close(fd);
  };
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  const auto signal_reader = [this] {
    ASSERT_EQ(syscall(SYS_tgkill, getpid(), id_.load(), SIGUSR2), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  FileStallWatch watch;
  const int64_t start = machine_ms();
  watch.look(start);
  EXPECT_EQ(watch.look(start + 5000).since_ms, start);
  signal_reader();
  watch.interrupted();
  EXPECT_EQ(watch.look(start + 6000).since_ms, start);
  signal_reader();
  EXPECT_EQ(watch.look(start + 7000).since_ms, 0) << "nobody said that this was a signal of ours";
  sigaction(SIGUSR2, &before, nullptr);
}

TEST_F(Threads, SayWhereTheyAre) {
  StackSampler sampler;
  const std::string all = describe_threads(sampler);
  EXPECT_THAT(all, AllOf(HasSubstr("main thread: state R"), HasSubstr("\nreader thread: state S, in read"),
                         HasSubstr("+0x"), Not(HasSubstr("no answer"))));
  EXPECT_THAT(sampler.stack_of(id_, std::chrono::milliseconds(1000)), HasSubstr(" < "));
  EXPECT_EQ(sampler.stack_of(1, std::chrono::milliseconds(10)), "") << "no thread of this process";
}

TEST(Io, BytesThatMoveAreSeen) {
  const IoMeter meter;
  const uint64_t before = meter.bytes();
  for (int i = 0; i < 100; ++i) meter.bytes();
  EXPECT_LT(meter.bytes() - before, 4096u) << "its own do not count";
  std::thread([] {
    const int fd = open("/dev/zero", O_RDONLY);
    std::vector<char> bytes(1 << 20);
    EXPECT_EQ(read(fd, bytes.data(), bytes.size()), 1 << 20);
    close(fd);
  }).join();
  if (before == 0) GTEST_SKIP() << "this kernel does not count";
  EXPECT_GE(meter.bytes() - before, 1u << 20);
}

}  // namespace
}  // namespace ashlar::watch
