// The threads of the CPU backend: who does what, and that who waits gives its core away.
#include "kernels/cpu/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "kernels/cpu/parallel_for.h"
#include "tests/support/cpu_time.h"
#include "tests/support/sanitizers.h"

namespace ashlar::cpu {
namespace {

TEST(Threads, EachThreadOfARegionWorksOnce) {
  for (const int size : {1, 2, 3, 7, 40}) {
    Threads threads(size);
    EXPECT_EQ(threads.size(), size);
    for (const int wanted : {1, 2, 5, 40, 99}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<int> calls(static_cast<size_t>(size)), counts(static_cast<size_t>(size));
        threads.run(wanted, [&](int thread, int count) {
          ++calls[static_cast<size_t>(thread)];
          counts[static_cast<size_t>(thread)] = count;
        });
        const int expected = std::min(wanted, size);
        for (int thread = 0; thread < size; ++thread) {
          ASSERT_EQ(calls[static_cast<size_t>(thread)], thread < expected ? 1 : 0);
          ASSERT_EQ(counts[static_cast<size_t>(thread)], thread < expected ? expected : 0);
        }
      }
    }
  }
}

// Asleep at every wait, at most, and at hardly any.
TEST(Threads, ABarrierSeparatesRounds) {
  for (const int64_t spin_us : {int64_t{0}, int64_t{1}, int64_t{2000}}) {
    Threads threads(4, spin_us);
    std::vector<int> round(4);
    std::atomic<int> wrong = 0;
    for (int repeat = 0; repeat < 5; ++repeat) {
      threads.run(4, [&](int thread, int count) {
        for (int i = 0; i < 50; ++i) {
          round[static_cast<size_t>(thread)] = i;
          threads.barrier(thread);
          for (int other = 0; other < count; ++other) wrong += round[static_cast<size_t>(other)] != i;
          threads.barrier(thread);
        }
      });
    }
    EXPECT_EQ(wrong, 0) << spin_us;
  }
}

TEST(Threads, RegionsOfChangingSizeAndGapsOfAnyLength) {
  Threads threads(3, 20);
  for (int i = 0; i < 400; ++i) {
    std::atomic<int64_t> sum = 0;
    threads.run(1 + i % 4, [&](int thread, int) { sum += thread + 1; });
    const int count = std::min(1 + i % 4, 3);
    ASSERT_EQ(sum, count * (count + 1) / 2);
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i));
  }
}

TEST(Threads, InsideARegionAndBesideOneACallIsOneThread) {
  Threads threads(2);
  std::atomic<int> inner = 0, threads_seen = 0;
  threads.run(2, [&](int, int) {
    threads.run(2, [&](int thread, int count) {
      ++inner;
      threads_seen += count;
      EXPECT_EQ(thread, 0);
    });
  });
  EXPECT_EQ(inner, 2);
  EXPECT_EQ(threads_seen, 2);
  std::atomic<int> other_count = 0;
  threads.run(2, [&](int thread, int) {
    if (thread != 0) return;
    std::thread([&] { threads.run(2, [&](int, int count) { other_count = count; }); }).join();
  });
  EXPECT_EQ(other_count, 1);
}

TEST(Threads, ParallelForCoversTheRangeOnce) {
  Threads threads(3);
  for (const int64_t n : {0, 1, 2, 5, 100, 1001}) {
    for (const int64_t grain : {1, 7, 5000}) {
      std::vector<int> seen(static_cast<size_t>(n));
      parallel_for(threads, n, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), int64_t{0}), n);
    }
  }
}

// A thread that is kept from its core is waited for without using another: OpenMP's barriers took it for milliseconds.
TEST(Threads, WhoWaitsLongLeavesTheCoreToOthers) {
  Threads threads(2);
  constexpr int kWaits = 50;
  constexpr auto kWait = std::chrono::milliseconds(4);
  const double before = testing::cpu_seconds(), waited_before = threads.waited_sec();
  threads.run(2, [&](int thread, int) {
    for (int i = 0; i < kWaits; ++i) {
      if (thread == 1) std::this_thread::sleep_for(kWait);
      threads.barrier(thread);
    }
  });
  const double cpu = testing::cpu_seconds() - before, waited = threads.waited_sec() - waited_before;
  EXPECT_LT(cpu, 0.3 * kWaits * 4e-3) << "of 200 ms of waiting";
  EXPECT_GE(waited, 0.9 * kWaits * 4e-3);
  std::this_thread::sleep_for(kWait);
  const double idle = testing::cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LT(testing::cpu_seconds() - idle, 0.02) << "threads without work sleep";
  EXPECT_LT(threads.waited_sec() - waited_before, waited + 0.05) << "and wait for nobody";
}

TEST(Threads, ARefusedThreadIsAnErrorOfResources) {
  if (testing::under_address_sanitizer()) GTEST_SKIP() << "the address sanitizer takes addresses of its own";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = rlim_t{2} << 30;
  if (setrlimit(RLIMIT_AS, &limited) != 0) GTEST_SKIP() << "no limit can be set";
  std::string text;
  try {
    const Threads threads(4000);  // stacks of 8 MiB
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(error.code(), ExitCode::kResource);
  }
  setrlimit(RLIMIT_AS, &before);
  EXPECT_NE(text.find("[threads] the system refused thread"), std::string::npos) << text;
  EXPECT_NE(text.find("of 4000"), std::string::npos) << text;
  EXPECT_NE(text.find("run.threads"), std::string::npos) << text;
}

}  // namespace
}  // namespace ashlar::cpu
