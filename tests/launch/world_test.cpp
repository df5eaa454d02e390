// Which cores a rank takes.
#include "launch/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

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
  EXPECT_THAT(said_, HasSubstr("it takes all "));
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
