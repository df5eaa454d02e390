// What a rank shows of itself, and what others read.
#include "launch/training/rank_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <stdexcept>

#include "core/base/error.h"
#include "launch/training/rank_watch.h"
#include "parallel/comm/self_comm.h"
#include "tests/support/scratch_dir.h"

namespace ashlar::training {
namespace {

using ::testing::HasSubstr;

class Board : public ::testing::Test {
 protected:
  RankInfo info(int64_t rank, uint64_t job = 7) const {
    return {.rank = rank, .ranks = 4, .host = "hostb", .job = job};
  }
  std::optional<RankPage> read(int64_t rank, uint64_t job = 7) const { return read_rank_page(dir_, rank, job); }
  std::string text(int64_t rank) const {
    std::array<char, 512> memory;
    return std::string(describe(read(rank).value(), "died", memory));
  }
  testing::ScratchDir scratch_;
  const std::filesystem::path dir_ = scratch_.path() / "run";
};

TEST_F(Board, ShowsStepAndOperation) {
  RankBoard board(dir_, info(2), nullptr);
  EXPECT_EQ(text(2), "[rank 2 of 4 on hostb] died before the first step, last operation nothing");
  board.step(17);
  board.operation({.kind = comm::OperationKind::kAllReduce, .op = comm::ReduceOp::kSum, .size = 4096, .number = 12},
                  "tensor");
  EXPECT_EQ(text(2),
            "[rank 2 of 4 on hostb] died at step 17, last operation all_reduce sum fp32[4096] on tensor, operation 12");
  board.operation({.kind = comm::OperationKind::kBarrier}, std::string(1000, 'x'));
  EXPECT_THAT(text(2), HasSubstr("last operation barrier on xxx"));
  EXPECT_LT(text(2).size(), 300u);
}

TEST_F(Board, FollowsTheEngine) {
  comm::SelfComm comm("self");
  {
    RankBoard board(dir_, info(0), comm.engine());
    comm.barrier().wait();
    EXPECT_THAT(text(0), HasSubstr("barrier on self, operation 0"));
  }
  comm.barrier().wait();  // nobody is told any more
  EXPECT_THAT(text(0), HasSubstr("operation 0"));
}

TEST_F(Board, EndsFinishedOrFailed) {
  { RankBoard board(dir_, info(0), nullptr); }
  EXPECT_EQ(read(0)->state, RankState::kFinished);
  try {
    const RankBoard board(dir_, info(1), nullptr);
    EXPECT_EQ(read(1)->state, RankState::kRunning);
    throw std::runtime_error("on its way");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(read(1)->state, RankState::kFailed);
  {
    RankBoard board(dir_, info(2), nullptr);
    board.leave(RankState::kCrashed);
  }
  EXPECT_EQ(read(2)->state, RankState::kCrashed) << "the first word stays";
}

TEST_F(Board, OtherJobsAndDamagedFilesAreNotRead) {
  RankBoard old(dir_, info(0, 6), nullptr);
  EXPECT_FALSE(read(0));
  EXPECT_FALSE(read(1));
  RankBoard board(dir_, info(0), nullptr);
  EXPECT_TRUE(read(0));
  old.step(5);
  EXPECT_EQ(read(0)->step, -1) << "an earlier job's rank writes into a file that is gone";
  const std::filesystem::path file = dir_ / ".ranks/rank-00000";
  std::filesystem::copy(file, dir_ / ".ranks/rank-00001");
  EXPECT_FALSE(read(1)) << "another rank's page";
  std::filesystem::resize_file(dir_ / ".ranks/rank-00001", 100);
  EXPECT_FALSE(read(1));
}

TEST_F(Board, KnowsProcessesThatEndedOrAreOthers) {
  const pid_t child = fork();
  if (child == 0) {
    const RankBoard board(dir_, info(3), nullptr);
    pause();
  }
  while (!read(3)) usleep(1000);
  EXPECT_TRUE(process_lives(*read(3)));
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_TRUE(process_lives(*read(3))) << "a debugger may hold it";
  RankPage reused = *read(3);
  reused.started -= 1;
  EXPECT_FALSE(process_lives(reused)) << "another process with its number";
  kill(child, SIGKILL);
  siginfo_t ended;
  waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  EXPECT_FALSE(process_lives(*read(3))) << "nobody has asked for its code yet";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(process_lives(*read(3)));
}

TEST_F(Board, AFolderThatCannotBeWrittenIsNamed) {
  std::ofstream(scratch_.file("run")) << "a file";
  try {
    const RankBoard board(dir_, info(0), nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kResource);
    EXPECT_THAT(error.what(), HasSubstr("rank-00000.new cannot be written: Not a directory"));
  }
}

TEST_F(Board, OneRankNeedsNone) {
  comm::SelfComm alone("world");
  comm::ControlPlane ranks(alone, "control");
  SignalWatch signals;
  EXPECT_EQ(watch_ranks(dir_, ranks, signals), nullptr);
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(Board, JobsDiffer) { EXPECT_NE(new_job(), new_job()); }

}  // namespace
}  // namespace ashlar::training
