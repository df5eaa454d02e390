// Work that may say "not yet": streams that wait for what is not of their device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/base/error.h"
#include "tests/gpu_emulator/sanitizer.h"
#include "tests/gpu_emulator/virtual_gpu.h"
#include "tests/gpu_emulator/work_queues.h"

namespace ashlar::emulator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Two streams whose work writes its name into `order`.
struct Streams {
  explicit Streams(uint64_t seed, StreamOrder stream_order = StreamOrder::kRandom, double patience_sec = 20)
      : queues({.seed = seed, .order = stream_order, .patience_sec = patience_sec}) {}

  void work(
      const char* name, int stream, std::function<void()> run = [] {}) {
    queues.begin(name, stream);
    queues.push([this, name, run = std::move(run)] {
      order += name;
      run();
    });
  }
  void step(const char* name, int stream, std::function<bool()> ready) {
    queues.begin(name, stream);
    queues.push_step([this, name, ready = std::move(ready)] {
      ++asked;
      if (!ready()) return false;
      order += name;
      return true;
    });
  }
  void wait(int stream) { queues.wait_of_host(queues.mark(stream)); }

  WorkQueues queues;
  std::string order;
  int asked = 0;
  const int a = queues.add_stream(), b = queues.add_stream();
};

TEST(Steps, AreAskedAgainAfterOtherStreamsHadTheirTurn) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Streams s(seed);
    bool there = false;
    s.step("s", s.a, [&] { return there; });
    s.work("after", s.a);
    for (const char* name : {"1", "2", "3"}) s.work(name, s.b);
    s.work("t", s.b, [&] { there = true; });
    s.wait(s.a);
    EXPECT_EQ(s.order, "123tsafter") << seed;
  }
}

TEST(Steps, KeepTheirStreamAndWhoWaitsForItWaiting) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Streams s(seed);
    int more = 5;
    s.step("s", s.a, [&] { return --more == 0; });
    s.queues.wait_for(s.b, s.queues.mark(s.a));
    s.work("b", s.b);
    s.wait(s.b);
    EXPECT_EQ(s.order, "sb") << seed;
    EXPECT_EQ(s.asked, 5) << seed;
  }
}

TEST(Steps, AreNotReachedUntilTheySaySo) {
  Streams s(3);
  bool there = false;
  s.step("s", s.a, [&] { return there; });
  const WorkQueues::Mark mark = s.queues.mark(s.a);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(s.queues.reached(mark));
  EXPECT_FALSE(s.queues.idle());
  there = true;
  EXPECT_TRUE(s.queues.reached(mark));
  EXPECT_TRUE(s.queues.idle());
}

TEST(Steps, HoldUpWhoQueuesThemWhereWorkRunsAtOnce) {
  Streams s(1, StreamOrder::kAtOnce);
  int more = 3;
  s.step("s", s.a, [&] { return --more == 0; });
  EXPECT_EQ(s.order, "s");
}

TEST(Steps, ThatNeverEndAreNamedWithTheirStreams) {
  Streams s(1, StreamOrder::kRandom, 0.05);
  s.step("all_reduce", s.a, [] { return false; });
  s.work("behind", s.a);
  s.step("broadcast", s.b, [] { return false; });
  try {
    s.wait(s.a);
    FAIL() << "waits no longer";
  } catch (const Bug& bug) {
    EXPECT_THAT(bug.what(),
                AllOf(HasSubstr("0.05 seconds"), HasSubstr("\"not yet\""), HasSubstr("all_reduce (call 1 on stream 0)"),
                      HasSubstr("broadcast (call 3 on stream 1)"), Not(HasSubstr("behind"))));
  }
}

TEST(Steps, DoNotCountAsStuckWhileOtherWorkRuns) {
  Streams s(1, StreamOrder::kRandom, 0.2);
  bool there = false;
  s.step("s", s.a, [&] { return there; });
  const auto pause = [] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    while (std::chrono::steady_clock::now() < end) continue;
  };
  for (int i = 0; i < 12; ++i) s.work(".", s.b, pause);
  s.work("t", s.b, [&] { there = true; });
  s.wait(s.a);
  EXPECT_EQ(s.order, "............ts");
}

TEST(Steps, ThatThrowAreOver) {
  Streams s(1);
  s.step("s", s.a, []() -> bool { throw std::runtime_error("lost the peer"); });
  s.work("after", s.a);
  EXPECT_THROW(s.wait(s.a), std::runtime_error);
  s.wait(s.a);
  EXPECT_EQ(s.order, "after");
  EXPECT_EQ(s.asked, 1);
}

TEST(Steps, MayTouchDeviceMemoryAndMayNotWaitForTheDevice) {
  VirtualGpu gpu({.name = "device 0", .seed = 4});
  const std::unique_ptr<Stream> stream = gpu.make_stream();
  auto* const x = static_cast<int*>(gpu.memory().allocate(4));
  int more = 3;
  gpu.queue_step(
      "step",
      [&] {
        *x = more;
        return --more == 0;
      },
      *stream);
  stream->synchronize();
  gpu.memory().open();
  EXPECT_EQ(*x, 1);
  gpu.memory().close();

  const std::unique_ptr<Stream> other = gpu.make_stream();
  const auto ask = [&] {
    other->synchronize();
    return true;
  };
  gpu.queue_step("asks", ask, *stream);
  gpu.queue_step(
      "is asked for", [] { return false; }, *other);
  EXPECT_THROW(stream->synchronize(), Bug);
}

TEST(Steps, WriteOnlyWhereTheirMemoryIs) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer ends the process at the write";
  VirtualGpu gpu({.name = "device 0"});
  const std::unique_ptr<Stream> stream = gpu.make_stream();
  auto* const x = static_cast<char*>(gpu.memory().allocate(4));
  gpu.queue_step(
      "long", [&] { return (x[4] = 1) == 1; }, *stream);
  try {
    stream->synchronize();
    FAIL() << "nobody looked at the gap";
  } catch (const Bug& bug) {
    EXPECT_THAT(bug.what(), HasSubstr("long (call 1 on stream 0)"));
  }
  gpu.memory().open();
  x[4] = static_cast<char>(0xFF);
  gpu.memory().close();
}

}  // namespace
}  // namespace ashlar::emulator
