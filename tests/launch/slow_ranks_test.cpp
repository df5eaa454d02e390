// Who is said to be slow: by the judge over times made up, and by a run one of whose ranks is stopped half of the time.
#include "launch/training/slow_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>

#include "core/base/philox.h"
#include "core/base/strings.h"
#include "core/device/host_limits.h"
#include "launch/training/rank_work_timer.h"
#include "launch/training/run_events.h"
#include "tests/launch/run_fixture.h"

namespace ashlar::training {
namespace {

using ::testing::HasSubstr;
using testing::RunFixture;

/// Time of a rank's own work in a step.
using Times = std::function<double(int64_t step, int rank)>;

std::vector<SlowRanks::Finding> judged(std::vector<int64_t> stages, int64_t steps, const Times& times) {
  const size_t ranks = stages.size();
  SlowRanks judge(std::move(stages));
  std::vector<SlowRanks::Finding> all;
  std::vector<std::vector<double>> window(ranks);
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t rank = 0; rank < ranks; ++rank) window[rank].push_back(times(step, static_cast<int>(rank)));
    if ((step + 1) % SlowRanks::kWindow != 0) continue;
    std::vector<double> ms;
    for (std::vector<double>& steps_ms : window) {
      ms.push_back(SlowRanks::time_of_window(steps_ms));
      steps_ms.clear();
    }
    for (SlowRanks::Finding found : judge.see(ms)) all.push_back(found);
  }
  return all;
}

double uniform(int64_t step, int rank, uint64_t seed) {
  return Philox::block(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(step))[0] / 4294967296.0;
}

TEST(SlowRanks, OneThatIsSlowIsSaidOnceAndThatItIsOver) {
  const auto found = judged({0, 0, 0, 0}, 400, [](int64_t step, int rank) {
    return rank == 2 && step >= 100 && step < 240 ? 80.0 : 50.0 + rank;
  });
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].ms, 80);
  EXPECT_EQ(found[0].usual_ms, 51);
  EXPECT_FALSE(found[0].lone);
  EXPECT_FALSE(found[0].over);
  EXPECT_EQ(found[1].rank, 2);
  EXPECT_TRUE(found[1].over);
}

TEST(SlowRanks, OnlyRanksOfAStageAreCompared) {
  // The last stage has the head: more work, on both of its ranks.
  const std::vector<int64_t> stages = {0, 0, 1, 1};
  EXPECT_TRUE(judged(stages, 200, [](int64_t, int rank) { return rank < 2 ? 20.0 : 60.0; }).empty());
  const auto found = judged(stages, 200, [](int64_t, int rank) { return rank == 1 ? 40.0 : rank < 2 ? 20.0 : 60.0; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].usual_ms, 20);
}

TEST(SlowRanks, TheLimitIsTheRatioForTwentySteps) {
  const auto at = [](double ratio, int64_t steps) {
    return judged(
               {0, 0, 0}, 200,
               [=](int64_t step, int rank) { return rank == 0 && step >= 50 && step < 50 + steps ? 40 * ratio : 40.0; })
        .size();
  };
  EXPECT_EQ(at(1.29, 150), 0u);
  EXPECT_EQ(at(1.31, 150), 1u);
  EXPECT_EQ(at(3, 10), 0u) << "ten steps are none";
  EXPECT_EQ(at(3, 20), 2u) << "said, and over";
}

TEST(SlowRanks, WithoutReplicasARankIsComparedWithItsBeginning) {
  const std::vector<int64_t> stages = {0, 1, 2};
  const double work[] = {30, 50, 90};
  const auto one =
      judged(stages, 300, [&](int64_t step, int rank) { return work[rank] * (rank == 1 && step >= 120 ? 1.5 : 1.0); });
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].rank, 1);
  EXPECT_EQ(one[0].usual_ms, 50);
  EXPECT_TRUE(one[0].lone);
  // A machine that gets busy slows all: none of them is the slow one.
  EXPECT_TRUE(judged(stages, 300, [&](int64_t step, int rank) { return work[rank] * (step >= 120 ? 2 : 1); }).empty());
}

// Ranks that are kept from their cores at random, for times as long as their work and much longer.
TEST(SlowRanks, NoiseIsNoSlowRank) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool lone : {false, true}) {
      std::vector<int64_t> stages(8, 0);
      for (size_t i = 0; lone && i < stages.size(); ++i) stages[i] = static_cast<int64_t>(i);
      const auto found = judged(stages, 2000, [&](int64_t step, int rank) {
        const double u = uniform(step, rank, seed);
        const double often = u < 0.4 ? 40 * uniform(step, rank, seed + 100) : 0;
        const double rare = u > 0.98 ? 2000 : 0;
        return 30 + 4 * uniform(step, rank, seed + 200) + often + rare;
      });
      EXPECT_TRUE(found.empty()) << "seed " << seed << ": rank " << found[0].rank << ", " << found[0].ms << " against "
                                 << found[0].usual_ms;
    }
  }
  // Of steps of a fraction of a millisecond nobody wants to hear.
  EXPECT_TRUE(judged({0, 0}, 400, [](int64_t, int rank) { return rank == 0 ? 0.3 : 0.9; }).empty());
}

TEST(ThreadWaits, MoreThanTheShareIsSaidOnce) {
  const auto said = [](double waited_sec, int threads, int steps) {
    ThreadWaits waits;
    int count = 0;
    for (int i = 0; i < steps; ++i) count += waits.add(0.1, waited_sec, threads).has_value();
    return count;
  };
  EXPECT_EQ(said(0.059, 2, 100), 0);
  EXPECT_EQ(said(0.061, 2, 100), 1);
  EXPECT_EQ(said(0.061, 2, ThreadWaits::kSteps - 1), 0);
  EXPECT_EQ(said(0.17, 4, 100), 0) << "three of four could have worked";
  EXPECT_EQ(said(0.19, 4, 100), 1);
  EXPECT_EQ(said(0.1, 1, 100), 0);
}

TEST(RunEvents, OfSlowRanksAndThreads) {
  EXPECT_EQ(
      to_line(RankSlow{.rank = 3, .host = "b\n7", .ms = 61.25, .usual_ms = 40, .step = 120, .steps = 20}).find('\n'),
      std::string::npos);
  EXPECT_THAT(
      to_line(RankSlow{.rank = 3, .host = "b7", .ms = 61.25, .usual_ms = 40, .step = 120, .steps = 20}),
      HasSubstr(
          "rank 3 on 'b7' is slow: 61.2 ms of its own work per step without waits, compared with 40.0 of the ranks "
          "of its stage, over 20 steps up to step 120"));
  EXPECT_THAT(to_line(RankSlow{.rank = 0, .host = "b7", .ms = 9, .usual_ms = 4, .lone = true}),
              HasSubstr("compared with 4.0 in its first 50 steps"));
  EXPECT_THAT(to_line(RankSlowOver{.rank = 3, .host = "b7", .ms = 41, .usual_ms = 40, .step = 260}),
              HasSubstr("rank 3 on 'b7' is no longer slow at step 260"));
  EXPECT_THAT(to_line(ThreadsWait{.rank = 0, .share = 0.724, .steps = 20, .threads = 4}),
              HasSubstr("the 4 threads of rank 0 waited for each other in 72% of 20 steps"));
  EXPECT_THAT(to_line(ThreadsWait{.rank = 0, .share = 0.724, .steps = 20, .threads = 4}),
              HasSubstr("try run.threads=2"));
}

TEST(SlowRanks, WhereTheyAreNotJudgedThatIsSaid) {
  const RunFixture run;
  const auto r =
      run.ashlar(str_cat("launch -np 2 train tiny.toml train.steps=5 train.eval_every=0 run.threads=", usable_cores()));
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("slow ranks are not detected: on a machine of this run the ranks have more threads"));
  EXPECT_THAT(to_line(SlowRanksNotJudged{.by_devices = true}), HasSubstr("not detected: the devices are asynchronous"));
}

// Nine tenths of the time, so that a busy machine, which gives each rank less than a core, does not hide it; steps are
// longer than the rank runs between two stops, so that each of them meets one.
TEST(SlowRanks, ARankThatIsStoppedNowAndThenIsNamed) {
  if (usable_cores() < 2) GTEST_SKIP() << "ranks that share a core are not judged";
  const RunFixture run;
  const pid_t pid = run.start(
      "launch -np 2 train tiny.toml mesh.data=2 train.global_batch=256 train.micro_batch=2 run.threads=1 "
      "train.steps=100000 train.eval_every=0 checkpoint.every=0 log.every=1000",
      "log");
  const auto steps = [&] { return run.metric("run", "slowest_rank").size(); };
  for (int i = 0; i < 3000 && steps() < 30; ++i) usleep(10'000);
  const pid_t slow = run.rank_process(1);
  const auto said = [&] { return run.read("log").find("warning: rank 1 on ") != std::string::npos; };
  for (int i = 0; i < 1500 && !said(); ++i) {
    kill(slow, SIGSTOP);
    usleep(18'000);
    kill(slow, SIGCONT);
    usleep(2'000);
  }
  EXPECT_TRUE(said()) << run.read("log");
  EXPECT_EQ(run.read("log").find("not detected"), std::string::npos);
  EXPECT_EQ(run.read("log").find("rank 0 on "), std::string::npos) << "it only waits: " << run.read("log");
  for (int i = 0; i < 1500 && run.read("log").find("no longer slow") == std::string::npos; ++i) usleep(10'000);
  EXPECT_THAT(run.read("log"), HasSubstr("is no longer slow at step "));
  kill(pid, SIGTERM);
  RunFixture::wait_for(pid);
  const std::vector<double> slowest = run.metric("run", "slowest_rank"), ms = run.metric("run", "slowest_rank_ms");
  ASSERT_EQ(slowest.size(), ms.size());
  EXPECT_GT(std::count(slowest.begin(), slowest.end(), 1), 15);
  EXPECT_GT(*std::max_element(ms.begin(), ms.end()), 10);
}

}  // namespace
}  // namespace ashlar::training
