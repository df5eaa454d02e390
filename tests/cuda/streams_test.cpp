// Streams, events and copies of the emulated device: as CUDA has them, and strict where CUDA leaves things to chance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/gpu_emulator/virtual_gpu.h"
#include "tests/support/thrown.h"

namespace ashlar::emulator {
namespace {

using ::ashlar::testing::bug_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kN = 64;

/// A device with three streams and three vectors.
struct Fixture {
  explicit Fixture(uint64_t seed = 5, StreamOrder order = StreamOrder::kRandom)
      : gpu({.name = "device 0", .seed = seed, .order = order}) {}

  VirtualGpu gpu;
  std::unique_ptr<Stream> a = gpu.make_stream(), b = gpu.make_stream(), c = gpu.make_stream();
  std::unique_ptr<Event> event = gpu.make_event();
  MutView x = vector(), y = vector(), z = vector();
  std::string order_of_work;

  MutView vector() { return {gpu.memory().allocate(kN * 4), DType::kFloat32, 1, kN, kN}; }
  void note(const char* name, Stream& stream) {
    gpu.queue(
        name, [this, name] { order_of_work += name; }, stream);
  }
  void fill(const MutView& v, Stream& stream) {
    gpu.queue(
        "fill", [v] { std::fill_n(static_cast<float*>(v.data), kN, 2.0F); }, stream,
        [&](const auto& touch) { touch(v, true); });
  }
  void copy(const MutView& from, const MutView& to, Stream& stream) {
    gpu.copy({.name = "copy", .to = to.data, .from = from.data, .bytes = kN * 4}, stream);
  }
  void to_host(const MutView& from, void* host, Stream& stream) {
    gpu.copy({.name = "to_host", .to = host, .from = from.data, .bytes = kN * 4}, stream);
  }
  void from_host(const void* host, const MutView& to, Stream& stream) {
    gpu.copy({.name = "from_host", .to = to.data, .from = host, .bytes = kN * 4}, stream);
  }
  float* pinned() { return static_cast<float*>(gpu.pinned().allocate(kN * 4)); }
  /// What later work of `to` needs of `from`; the planted errors leave it out.
  void order(Stream& from, Stream& to) {
    from.record(*event);
    to.wait_for(*event);
  }
};

TEST(Streams, KeepTheirOwnOrderAndLeaveTheRestToChance) {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Fixture f(seed);
    for (const char* name : {"1", "2", "3"}) f.note(name, *f.a);
    for (const char* name : {"x", "y"}) f.note(name, *f.b);
    EXPECT_EQ(f.order_of_work, "") << "nothing runs before somebody waits";
    f.gpu.synchronize();
    std::string first, second;
    for (const char c : f.order_of_work) (std::isdigit(c) != 0 ? first : second) += c;
    EXPECT_EQ(first, "123");
    EXPECT_EQ(second, "xy");
    orders.insert(f.order_of_work);
  }
  EXPECT_GE(orders.size(), 8u) << "of ten";
}

TEST(Streams, RepeatTheirOrderForASeed) {
  const auto run = [] {
    Fixture f(9);
    for (int i = 0; i < 10; ++i) f.note("a", *f.a), f.note("b", *f.b), f.note("c", *f.c);
    f.gpu.synchronize();
    return f.order_of_work;
  };
  EXPECT_EQ(run(), run());
}

TEST(Streams, ObeyEvents) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Fixture f(seed);
    f.note("1", *f.a);
    f.order(*f.a, *f.b);
    f.note("2", *f.b);
    f.note("3", *f.a);  // behind the event: free
    f.order(*f.b, *f.c);
    f.note("4", *f.c);
    f.c->synchronize();
    std::erase(f.order_of_work, '3');
    EXPECT_EQ(f.order_of_work, "124");
  }
}

TEST(Streams, RunAtOnceWhereAskedTo) {
  Fixture f(1, StreamOrder::kAtOnce);
  f.note("1", *f.a);
  EXPECT_EQ(f.order_of_work, "1");
  f.note("2", *f.b);
  f.note("3", *f.a);
  EXPECT_EQ(f.order_of_work, "123");
  EXPECT_TRUE(f.gpu.queues().idle());
  f.gpu.synchronize();
  EXPECT_TRUE(f.gpu.queues().host_waits().empty());
}

TEST(Streams, OutliveTheirHandle) {
  Fixture f;
  f.note("1", *f.a);
  f.a->record(*f.event);
  f.a.reset();
  EXPECT_EQ(f.order_of_work, "");
  f.event->synchronize();
  EXPECT_EQ(f.order_of_work, "1");
}

TEST(Streams, PassWhatWorkThrowsToTheWait) {
  Fixture f;
  f.gpu.queue(
      "broken", [] { throw Bug("broken"); }, *f.a);
  f.note("1", *f.b);
  EXPECT_THROW(f.a->synchronize(), Bug);
  f.note("2", *f.a);
  f.gpu.synchronize();
  EXPECT_EQ(f.order_of_work.size(), 2u) << "the device goes on";
}

TEST(Events, CountAsReachedBeforeTheyAreRecorded) {
  Fixture f;
  f.note("1", *f.a);
  EXPECT_TRUE(f.event->reached());
  f.event->synchronize();
  f.b->wait_for(*f.event);
  f.note("2", *f.b);
  f.b->synchronize();
  EXPECT_THAT(f.order_of_work, HasSubstr("2"));
}

TEST(Events, MarkWhatTheyMarkedWhenTheWaitWasQueued) {
  Fixture f;
  f.note("1", *f.a);
  f.order(*f.a, *f.b);
  f.note("2", *f.b);
  f.note("3", *f.c);
  f.c->record(*f.event);  // marks something else from now on
  f.b->synchronize();
  std::erase(f.order_of_work, '3');
  EXPECT_EQ(f.order_of_work, "12");
}

TEST(Events, OfTheStreamItselfAreNoWait) {
  Fixture f;
  f.note("1", *f.a);
  f.order(*f.a, *f.a);
  f.note("2", *f.a);
  f.a->synchronize();
  EXPECT_EQ(f.order_of_work, "12");
}

TEST(Events, AreReachedByThoseWhoAskOftenEnough) {
  int asked = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Fixture f(seed);
    for (int i = 0; i < 10; ++i) f.note("1", *f.a);
    f.a->record(*f.event);
    while (!f.event->reached()) ++asked;
    EXPECT_EQ(f.order_of_work.size(), 10u);
  }
  EXPECT_GT(asked, 20) << "they tell the truth meanwhile";
}

TEST(Host, WaitsAreCountedAndNamed) {
  Fixture f;
  f.a->synchronize();
  EXPECT_TRUE(f.gpu.queues().host_waits().empty()) << "nothing to wait for";
  f.note("adamw", *f.a);
  f.a->synchronize();
  ASSERT_EQ(f.gpu.queues().host_waits().size(), 1u);
  EXPECT_EQ(f.gpu.queues().host_waits()[0], "stream 0 at adamw (call 1 on stream 0)");
  f.a->synchronize();
  EXPECT_EQ(f.gpu.queues().host_waits().size(), 1u);
}

TEST(Host, FunctionsRunInTheirStreamAndMayNotCallTheDevice) {
  Fixture f;
  f.note("1", *f.a);
  f.gpu.host_function(
      "tell", [&] { f.order_of_work += "2"; }, *f.a);
  f.note("3", *f.a);
  f.a->synchronize();
  EXPECT_EQ(f.order_of_work, "123");
  f.gpu.host_function(
      "calls", [&] { f.note("4", *f.b); }, *f.a);
  EXPECT_THAT(bug_of([&] { f.a->synchronize(); }),
              AllOf(HasSubstr("calls (call 4"), HasSubstr("may not call the device")));
  f.gpu.host_function(
      "waits", [&] { f.b->synchronize(); }, *f.a);
  f.note("5", *f.b);
  EXPECT_THAT(bug_of([&] { f.a->synchronize(); }), HasSubstr("waits for its own device"));
}

TEST(Copies, ReadPageableMemoryAtTheCall) {
  Fixture f;
  std::vector<float> host(kN, 1), back(kN);
  f.from_host(host.data(), f.x, *f.a);
  host.assign(kN, 7);
  EXPECT_TRUE(f.gpu.queues().host_waits().empty());
  f.to_host(f.x, back.data(), *f.a);
  EXPECT_EQ(back[kN - 1], 1);
  EXPECT_EQ(f.gpu.queues().host_waits().size(), 1u) << "a copy to pageable memory waits";
}

TEST(Copies, ReadPinnedMemoryWhenTheyRun) {
  Fixture f;
  float* const host = f.pinned();
  std::fill_n(host, kN, 3.0F);
  f.from_host(host, f.x, *f.a);
  float* const back = f.pinned();
  std::fill_n(back, kN, 5.0F);
  f.to_host(f.x, back, *f.a);
  EXPECT_TRUE(std::isnan(back[5])) << "for those who do not wait";
  EXPECT_TRUE(f.gpu.queues().host_waits().empty());
  f.a->synchronize();
  EXPECT_EQ(back[5], 3);
}

TEST(Copies, FindASourceThatTheHostChanges) {
  Fixture f;
  float* const host = f.pinned();
  std::fill_n(host, kN, 3.0F);
  f.from_host(host, f.x, *f.a);
  host[3] = 7;
  EXPECT_THAT(bug_of([&] { f.a->synchronize(); }),
              AllOf(HasSubstr("from_host (call 1"), HasSubstr("the host changed")));
}

/// Two calls on two streams that touch the same memory, and what the error must say of them.
struct Pair {
  const char* name;
  std::function<void(Fixture&)> first, second;
  const char* says;
};

TEST(MissingEdges, AreNamedWithBothCalls) {
  const auto part = [](MutView v, int64_t begin, int64_t count) { return flat_range(v, begin, count); };
  const auto columns = [](const MutView& v, int64_t begin, int64_t count) {
    return MutView{static_cast<float*>(v.data) + begin, DType::kFloat32, 8, count, 8};
  };
  const auto touches = [](Fixture& f, const char* name, const MutView& v, bool writes, Stream& s) {
    f.gpu.queue(
        name, [] {}, s, [&](const auto& touch) { touch(v, writes); });
  };
  const Pair pairs[] = {
      {"read after write", [](Fixture& f) { f.fill(f.x, *f.a); }, [](Fixture& f) { f.copy(f.x, f.y, *f.b); },
       "copy (call 2 on stream 1) reads what fill (call 1 on stream 0) writes"},
      {"write after read", [](Fixture& f) { f.copy(f.x, f.y, *f.a); }, [](Fixture& f) { f.fill(f.x, *f.b); },
       "fill (call 2 on stream 1) writes what copy (call 1 on stream 0) reads"},
      {"write after write", [](Fixture& f) { f.fill(f.x, *f.a); }, [](Fixture& f) { f.fill(f.x, *f.b); },
       "fill (call 2 on stream 1) writes what fill (call 1 on stream 0) writes"},
      {"a copy to the host", [](Fixture& f) { f.fill(f.x, *f.a); },
       [](Fixture& f) { f.to_host(f.x, f.pinned(), *f.b); }, "to_host (call 2 on stream 1) reads what fill"},
      {"a part of a vector", [&](Fixture& f) { touches(f, "half", part(f.x, 32, 32), true, *f.a); },
       [&](Fixture& f) { touches(f, "third", part(f.x, 20, 20), false, *f.b); },
       "third (call 2 on stream 1) reads what half"},
      {"columns that overlap", [&](Fixture& f) { touches(f, "left", columns(f.x, 0, 5), true, *f.a); },
       [&](Fixture& f) { touches(f, "right", columns(f.x, 4, 4), true, *f.b); },
       "right (call 2 on stream 1) writes what left"},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.name);
    for (const StreamOrder order : {StreamOrder::kRandom, StreamOrder::kAtOnce}) {
      {
        Fixture f(5, order);
        pair.first(f);
        f.order(*f.a, *f.b);
        EXPECT_NO_THROW(pair.second(f));
        f.b->synchronize();
      }
      {
        Fixture f(5, order);
        pair.first(f);
        f.a->synchronize();  // the host has waited
        EXPECT_NO_THROW(pair.second(f));
      }
      Fixture f(5, order);
      pair.first(f);
      EXPECT_THAT(bug_of([&] { pair.second(f); }), AllOf(HasSubstr(pair.says), HasSubstr("no event")));
    }
  }
  Fixture f;
  touches(f, "left", columns(f.x, 0, 4), true, *f.a);
  EXPECT_NO_THROW(touches(f, "right", columns(f.x, 4, 4), true, *f.b)) << "columns beside each other are apart";
  f.fill(f.y, *f.a);
  EXPECT_NO_THROW(f.fill(f.z, *f.b)) << "and neighbours on one page";
}

TEST(MissingEdges, AreFoundWhereAnEventOrdersTheWrongThing) {
  {
    Fixture f;  // recorded too early
    f.a->record(*f.event);
    f.fill(f.x, *f.a);
    f.b->wait_for(*f.event);
    EXPECT_THROW(f.copy(f.x, f.y, *f.b), Bug);
  }
  {
    Fixture f;  // of another stream
    f.fill(f.x, *f.a);
    f.c->record(*f.event);
    f.b->wait_for(*f.event);
    EXPECT_THROW(f.copy(f.x, f.y, *f.b), Bug);
  }
  {
    Fixture f;  // waited for by another stream
    f.fill(f.x, *f.a);
    f.order(*f.a, *f.c);
    EXPECT_THROW(f.copy(f.x, f.y, *f.b), Bug);
    f.order(*f.c, *f.b);  // and on from there
    EXPECT_NO_THROW(f.copy(f.x, f.z, *f.b));
  }
}

TEST(MissingEdges, AreFoundWhereMemoryIsUsedAgainTooEarly) {
  {
    Fixture f;  // given back while a call on another stream still reads it
    f.copy(f.x, f.y, *f.b);
    f.gpu.memory().release(f.x.data);
    const MutView again = f.vector();
    ASSERT_EQ(again.data, f.x.data);
    EXPECT_THAT(bug_of([&] { f.fill(again, *f.a); }), HasSubstr("writes what copy (call 1 on stream 1) reads"));
    f.order(*f.b, *f.a);
    EXPECT_NO_THROW(f.fill(again, *f.a));
  }
  {
    Fixture f;  // or writes it
    f.fill(f.x, *f.b);
    f.gpu.memory().release(f.x.data);
    EXPECT_THAT(bug_of([&] { f.copy(f.vector(), f.y, *f.a); }),
                HasSubstr("reads what fill (call 1 on stream 1) writes"));
  }
  {
    Fixture f;  // pinned memory that a copy has still to write
    float* const host = f.pinned();
    f.to_host(f.x, host, *f.b);
    f.gpu.pinned().release(host);
    float* const again = f.pinned();
    ASSERT_EQ(again, host);
    EXPECT_THAT(bug_of([&] { f.from_host(again, f.y, *f.a); }),
                HasSubstr("reads what to_host (call 1 on stream 1) writes"));
  }
  {
    Fixture f;  // on the same stream memory is used again in order
    f.fill(f.x, *f.a);
    f.gpu.memory().release(f.x.data);
    EXPECT_NO_THROW(f.fill(f.vector(), *f.a));
  }
}

}  // namespace
}  // namespace ashlar::emulator
