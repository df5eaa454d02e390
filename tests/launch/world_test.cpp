// Which cores a rank takes.
#include "launch/world.h"
#include "launch/cpu_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

namespace ashlar::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> share(const std::vector<int>& allowed, int64_t rank, int64_t ranks, int64_t threads = 1) {
  return share_of_cores({.allowed = allowed, .local_rank = rank, .local_ranks = ranks, .threads = threads});
}

TEST(ShareOfCores, ByHand) {
  const std::vector<int> some = {0, 1, 4, 5, 9};  // as a cgroup may allow
  EXPECT_THAT(share(some, 0, 1), ElementsAre(0, 1, 4, 5, 9));
  EXPECT_THAT(share(some, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(share(some, 1, 2), ElementsAre(4, 5, 9));
  EXPECT_THAT(share(some, 4, 5), ElementsAre(9));
  EXPECT_THAT(share(some, 5, 6), ElementsAre(0, 1, 4, 5, 9)) << "fewer cores than ranks";
  EXPECT_THAT(share(some, 0, 2, 3), ElementsAre(0, 1, 4)) << "more threads than the share";
  EXPECT_THAT(share(some, 4, 5, 3), ElementsAre(4, 5, 9));
  EXPECT_THAT(share(some, 1, 2, 99), ElementsAre(0, 1, 4, 5, 9));
}

TEST(ShareOfCores, FairAndApart) {
  for (int cores = 1; cores <= 24; ++cores) {
    std::vector<int> allowed(static_cast<size_t>(cores));
    std::iota(allowed.begin(), allowed.end(), 3);
    for (int ranks = 1; ranks <= cores; ++ranks) {
      std::set<int> taken;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int> mine = share(allowed, rank, ranks);
        EXPECT_GE(static_cast<int>(mine.size()), cores / ranks);
        EXPECT_LE(static_cast<int>(mine.size()), (cores + ranks - 1) / ranks);
        for (const int core : mine) EXPECT_TRUE(taken.insert(core).second) << core << " is taken twice";
      }
      EXPECT_EQ(static_cast<int>(taken.size()), cores) << "a core is left idle";
    }
  }
}

// Each launcher's variables; what is not named here is unset.
World world_with(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  World world = world_from_environment();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return world;
}
std::vector<int64_t> numbers(const World& w) { return {w.ranks, w.rank, w.local_ranks, w.local_rank, w.under_mpirun}; }

TEST(WorldFromEnvironment, EachLauncher) {
  EXPECT_THAT(numbers(world_with({})), ElementsAre(1, 0, 1, 0, 0));
  EXPECT_FALSE(world_with({}).host.empty());
  const std::map<std::string, std::string> open_mpi = {{"OMPI_COMM_WORLD_SIZE", "8"},
                                                       {"OMPI_COMM_WORLD_RANK", "5"},
                                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
  EXPECT_THAT(numbers(world_with(open_mpi)), ElementsAre(8, 5, 4, 1, 1));
  EXPECT_THAT(
      numbers(world_with({{"PMI_SIZE", "8"}, {"PMI_RANK", "5"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "1"}})),
      ElementsAre(8, 5, 4, 1, 1));

  std::map<std::string, std::string> slurm = {{"SLURM_STEP_NUM_TASKS", "11"},
                                              {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                                              {"SLURM_NODEID", "1"},
                                              {"SLURM_LOCALID", "2"}};
  EXPECT_THAT(numbers(world_with(slurm)), ElementsAre(1, 0, 1, 0, 0)) << "a batch script is no rank";
  slurm["PMIX_RANK"] = "6";
  EXPECT_THAT(numbers(world_with(slurm)), ElementsAre(11, 6, 4, 2, 1));
  slurm["SLURM_NODEID"] = "2";
  EXPECT_THAT(numbers(world_with(slurm)), ElementsAre(11, 6, 3, 2, 1));
  slurm.insert(open_mpi.begin(), open_mpi.end());  // mpirun inside a Slurm job
  EXPECT_THAT(numbers(world_with(slurm)), ElementsAre(8, 5, 4, 1, 1));
}

class WidenAffinity : public ::testing::Test {
 protected:
  void SetUp() override {
    sched_getaffinity(0, sizeof(before_), &before_);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&first_) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &first_);
    }
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "a machine with one core";
    sched_setaffinity(0, sizeof(first_), &first_);
  }
  void TearDown() override { sched_setaffinity(0, sizeof(before_), &before_); }

  static cpu_set_t now() {
    cpu_set_t mask;
    sched_getaffinity(0, sizeof(mask), &mask);
    return mask;
  }

  cpu_set_t before_{}, first_{};
  std::string said_;
  Log log_{[this](std::string_view line) { said_ += std::string(line) + "\n"; }};
};

TEST_F(WidenAffinity, ALoneBoundRankTakesTheMachine) {
  const int64_t cores = widen_affinity({.under_mpirun = true}, log_);
  EXPECT_EQ(cores, CPU_COUNT(&before_));
  const cpu_set_t mask = now();
  EXPECT_TRUE(CPU_EQUAL(&mask, &before_));
  EXPECT_THAT(said_, HasSubstr("rank 0 was bound to 1 of "));
  EXPECT_THAT(said_, HasSubstr("it now uses all "));
}

TEST_F(WidenAffinity, ABoundRankTakesItsShareAndNoMore) {
  const int ranks = CPU_COUNT(&before_);
  const World world{.ranks = ranks, .rank = 1, .local_ranks = ranks, .local_rank = 1, .under_mpirun = true};
  EXPECT_EQ(widen_affinity(world, log_), ranks);
  cpu_set_t mask = now();
  EXPECT_TRUE(CPU_EQUAL(&mask, &first_)) << "one core is its share";
  EXPECT_EQ(said_, "");
  EXPECT_EQ(widen_affinity(world, log_, 2), ranks);
  mask = now();
  EXPECT_EQ(CPU_COUNT(&mask), 2);
  EXPECT_THAT(said_, HasSubstr("rank 1 was bound to 1 of "));
}

TEST_F(WidenAffinity, WithoutALauncherTheMaskIsTheUsers) {
  EXPECT_EQ(widen_affinity({}, log_), 1);
  const cpu_set_t mask = now();
  EXPECT_TRUE(CPU_EQUAL(&mask, &first_));
  EXPECT_EQ(said_, "");
}

}  // namespace
}  // namespace ashlar::launch
