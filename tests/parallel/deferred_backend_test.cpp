// The deferred backend finds what it is there to find: planted missing waits, memory used again too early, and hosts
// that touch what is a device's. Each is also run as it should be, without a complaint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/autograd/ctx.h"
#include "kernels/make_backend.h"
#include "tests/support/deferred/deferred_backend.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kN = 64;

/// A device with three streams and some memory; each test makes its own.
struct Device {
  DeferredBackend backend{kernels::make_backend({.threads = 1}), 5};
  std::unique_ptr<Stream> a = backend.make_stream(), b = backend.make_stream(), c = backend.make_stream();
  std::unique_ptr<Event> event = backend.make_event();
  Tensor x = tensor(), y = tensor(), z = tensor();
  std::vector<float> host = std::vector<float>(kN, 1.0F);

  Tensor tensor() { return Tensor::allocate(backend.allocator(MemoryKind::kActivations), DType::kFloat32, Shape{kN}); }
  void fill(const Tensor& t, Stream& s) { backend.fill({.dst = t.mut_view(), .value = 2}, s); }
  void copy(const Tensor& from, const Tensor& to, Stream& s) {
    backend.copy({.src = from.view(), .dst = to.mut_view()}, s);
  }
  /// What later work of `to` needs of `from`; the planted errors leave it out.
  void order(Stream& from, Stream& to) {
    from.record(*event);
    to.wait_for(*event);
  }
};

/// Two calls on two streams, and between them what orders them.
struct Pair {
  const char* name;
  std::function<void(Device&)> first, second;
  const char* says;
};

TEST(DeferredBackend, FindsEachMissingWaitBetweenTwoStreams) {
  const StepScalars scalars{.lr = 1};
  const Pair pairs[] = {
      {"read after write", [](Device& d) { d.fill(d.x, *d.a); }, [](Device& d) { d.copy(d.x, d.y, *d.b); },
       "reads what fill"},
      {"write after read", [](Device& d) { d.copy(d.x, d.y, *d.a); }, [](Device& d) { d.fill(d.x, *d.b); },
       "writes what copy"},
      {"write after write", [](Device& d) { d.fill(d.x, *d.a); }, [](Device& d) { d.fill(d.x, *d.b); },
       "writes what fill"},
      {"copy to the host", [](Device& d) { d.fill(d.x, *d.a); },
       [](Device& d) { d.backend.copy_to_host(d.x.view(), d.host.data(), *d.b); }, "reads what fill"},
      {"copy from the host", [](Device& d) { d.backend.copy_from_host(d.host.data(), d.x.mut_view(), *d.a); },
       [](Device& d) { d.copy(d.x, d.y, *d.b); }, "reads what copy_from_host"},
      {"host memory of two copies", [](Device& d) { d.backend.copy_from_host(d.host.data(), d.x.mut_view(), *d.a); },
       [](Device& d) { d.backend.copy_to_host(d.y.view(), d.host.data(), *d.b); }, "writes what copy_from_host"},
      {"scalars of a step",
       [&](Device& d) {
         const MutView memory{d.z.mut_view().data, DType::kUInt8, 1, sizeof(scalars), sizeof(scalars)};
         d.backend.set_struct(SetStruct::of(scalars, memory), *d.a);
       },
       [](Device& d) { d.copy(d.z, d.y, *d.b); }, "reads what set_struct"},
      {"a part of a tensor", [](Device& d) { d.fill(d.x.flat_range(32, 32), *d.a); },
       [](Device& d) { d.copy(d.x, d.y, *d.b); }, "reads what fill"},
      {"an accumulated output", [](Device& d) { d.fill(d.y, *d.a); },
       [](Device& d) {
         d.backend.copy({.src = d.x.view(), .dst = d.y.mut_view(), .mode = GradMode::kAccumulate}, *d.b);
       },
       "writes what fill"},
      {"columns of one matrix that overlap",
       [](Device& d) {
         d.fill(d.x.reshape({8, 8}).column_range(0, 5), *d.a);
       },
       [](Device& d) {
         d.fill(d.x.reshape({8, 8}).column_range(4, 4), *d.b);
       },
       "writes what fill"},
  };
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.name);
    {
      Device d;
      pair.first(d);
      d.order(*d.a, *d.b);
      EXPECT_NO_THROW(pair.second(d));
      d.b->synchronize();
    }
    Device d;
    pair.first(d);
    try {
      pair.second(d);
      ADD_FAILURE() << "the missing wait was not found";
    } catch (const Bug& bug) {
      EXPECT_THAT(bug.what(), AllOf(HasSubstr(pair.says), HasSubstr("no event")));
    }
  }
}

TEST(DeferredBackend, FindsEventsThatOrderTheWrongThing) {
  {
    Device d;  // recorded too early
    d.a->record(*d.event);
    d.fill(d.x, *d.a);
    d.b->wait_for(*d.event);
    EXPECT_THROW(d.copy(d.x, d.y, *d.b), Bug);
  }
  {
    Device d;  // of another stream
    d.fill(d.x, *d.a);
    d.c->record(*d.event);
    d.b->wait_for(*d.event);
    EXPECT_THROW(d.copy(d.x, d.y, *d.b), Bug);
  }
  {
    Device d;  // waited for by another stream
    d.fill(d.x, *d.a);
    d.order(*d.a, *d.c);
    EXPECT_THROW(d.copy(d.x, d.y, *d.b), Bug);
    d.order(*d.c, *d.b);  // and on from there
    EXPECT_NO_THROW(d.copy(d.x, d.y, *d.b));
  }
  {
    Device d;  // the host has waited for it, and queues what comes after
    d.fill(d.x, *d.a);
    d.a->synchronize();
    EXPECT_NO_THROW(d.copy(d.x, d.y, *d.b));
    EXPECT_EQ(d.backend.host_waits().size(), 1u);
  }
  {
    Device d;  // columns beside each other are apart
    d.fill(d.x.reshape({8, 8}).column_range(0, 4), *d.a);
    EXPECT_NO_THROW(d.fill(d.x.reshape({8, 8}).column_range(4, 4), *d.b));
  }
}

TEST(DeferredBackend, FindsMemoryThatIsUsedAgainTooEarly) {
  {
    Device d;  // given back while a call on another stream still reads it
    d.copy(d.x, d.y, *d.b);
    d.x = {};
    const Tensor again = d.tensor();
    EXPECT_THROW(d.fill(again, *d.a), Bug);
    d.order(*d.b, *d.a);
    EXPECT_NO_THROW(d.fill(again, *d.a));
  }
  {
    Device d;  // or writes it
    d.fill(d.x, *d.b);
    d.x = {};
    EXPECT_THROW(d.copy(d.tensor(), d.y, *d.a), Bug);
  }
  {
    Device d;  // on the same stream memory is used again in order
    d.fill(d.x, *d.a);
    d.x = {};
    EXPECT_NO_THROW(d.fill(d.tensor(), *d.a));
  }
  {
    Device d;  // host memory that a copy has still to read
    d.backend.copy_from_host(d.host.data(), d.x.mut_view(), *d.a);
    d.host[3] = 7;
    EXPECT_THROW(d.a->synchronize(), Bug);
  }
  {
    Device d;  // the target of a copy, read before the wait
    d.fill(d.x, *d.a);
    d.backend.copy_to_host(d.x.view(), d.host.data(), *d.a);
    EXPECT_TRUE(std::isnan(d.host[5]));
    d.a->synchronize();
    EXPECT_EQ(d.host[5], 2);
  }
}

TEST(DeferredBackendDeathTest, FindsAHostThatTouchesDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string words =
      "the host touches byte .* of deferred device, that fill .call 1 on stream 0. writes; the last calls queued";
  const auto data = [](Device& d) { return static_cast<volatile float*>(d.x.mut_view().data); };
  const auto dies = [&](const std::function<void(Device&)>& touch) {
    EXPECT_DEATH(
        {
          Device d;
          d.fill(d.x, *d.a);
          touch(d);
        },
        words);
  };
  dies([&](Device& d) { static_cast<void>(data(d)[0]); });
  dies([&](Device& d) { static_cast<void>(data(d)[kN - 1]); });
  dies([&](Device& d) { data(d)[1] = 3; });
  dies([&](Device& d) {
    d.a->synchronize();  // its call has run: it is the device's all the same
    static_cast<void>(data(d)[0]);
  });
  dies([&](Device& d) { std::memcpy(d.host.data(), d.x.view().data, 16); });
  dies([&](Device& d) { std::memcpy(d.x.mut_view().data, d.host.data(), 16); });
}

TEST(DeferredBackend, KnowsAllViewsOfAnArgsStruct) {
  const float memory[4] = {};
  const ConstView in{memory, DType::kFloat32, 1, 4, 4};
  float other[4] = {};
  const MutView out{other, DType::kFloat32, 1, 4, 4};
  int reads = 0, writes = 0;
  const auto count = [&](const auto& view) {
    (std::is_same_v<std::decay_t<decltype(view)>, MutView> ? writes : reads) += 1;
  };
  AttentionBackward args{.dout = in, .q = in, .k = in, .v = in, .out = in, .lse = in, .dq = out, .dk = out, .dv = out};
  args.shape.mask.doc_start = in;
  args.shape.dropout.scalars = in;
  for_each_view(args, count);
  EXPECT_EQ(reads, 8);
  EXPECT_EQ(writes, 3);
}

}  // namespace
}  // namespace ashlar::testing
