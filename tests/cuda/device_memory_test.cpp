// Memory of the emulated device: exactly sized, NaN when fresh and when released, closed to the host.
#include "tests/gpu_emulator/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "tests/gpu_emulator/sanitizer.h"
#include "tests/gpu_emulator/virtual_gpu.h"
#include "tests/support/thrown.h"

namespace ashlar::emulator {
namespace {

using ::ashlar::testing::bug_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

bool all_nan(const void* at, int64_t bytes) {
  const auto* const p = static_cast<const unsigned char*>(at);
  return std::all_of(p, p + bytes, [](unsigned char byte) { return byte == 0xFF; });
}

TEST(DeviceMemory, IsAlignedAndNanWhereverItLies) {
  DeviceMemory memory({});
  for (const int64_t bytes : {1, 4, 255, 256, 257, 5000, 100000}) {
    void* const block = memory.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0u) << bytes;
    EXPECT_TRUE(all_nan(block, bytes)) << bytes;
    std::memset(block, 0, static_cast<size_t>(bytes));
    memory.check("nobody");
  }
}

TEST(DeviceMemory, GivesTheSameAddressesToTheSameCalls) {
  DeviceMemory memory({});
  void* const a = memory.allocate(1000);
  void* const b = memory.allocate(300);
  memory.take_hash();
  void* const c = memory.allocate(500);
  memory.release(c);
  const uint64_t once = memory.take_hash();
  EXPECT_EQ(memory.allocate(500), c);
  memory.release(c);
  EXPECT_EQ(memory.take_hash(), once);
  memory.release(a);
  EXPECT_EQ(memory.allocate(1000), a);
  memory.release(b);
  EXPECT_NE(memory.take_hash(), once);
}

TEST(DeviceMemory, KnowsWhatIsHandedOut) {
  DeviceMemory memory({.owner = "device 7"});
  auto* const a = static_cast<char*>(memory.allocate(100));
  auto* const b = static_cast<char*>(memory.allocate(256));
  EXPECT_TRUE(is_device_memory(a, 100));
  EXPECT_TRUE(is_device_memory(a + 96, 4));
  EXPECT_FALSE(is_device_memory(a + 96, 8)) << "one element beyond";
  EXPECT_FALSE(is_device_memory(a + 100, 1));
  EXPECT_TRUE(is_device_memory(b, 256));
  EXPECT_FALSE(is_device_memory(b + 256, 1)) << "between two blocks";
  memory.release(a);
  EXPECT_FALSE(is_device_memory(a, 1)) << "released";
  const std::vector<char> host(16);
  EXPECT_FALSE(is_device_memory(host.data(), 16));
  EXPECT_FALSE(is_device_memory(&memory, 8));
  EXPECT_EQ(memory.describe(b + 12), "byte 12 of block 2 (256 bytes) of device 7");
  EXPECT_EQ(memory.describe(b + 260), "byte 4 past the end of block 2 (256 bytes) of device 7");
  EXPECT_EQ(memory.describe(a + 1), "memory that is not handed out of device 7");
}

TEST(DeviceMemory, IsNotThePinnedMemoryOfTheHost) {
  VirtualGpu gpu({});
  void* const pinned = gpu.pinned().allocate(64);
  EXPECT_FALSE(is_device_memory(pinned, 4));
  EXPECT_TRUE(gpu.pinned().holds(pinned, 64));
  EXPECT_TRUE(is_device_memory(gpu.memory().allocate(64), 64));
}

TEST(DeviceMemory, TellsDevicesApart) {
  DeviceMemory one({}), two({});
  void* const a = one.allocate(64);
  void* const b = two.allocate(64);
  EXPECT_EQ(DeviceMemory::of(a), &one);
  EXPECT_EQ(DeviceMemory::of(b), &two);
  EXPECT_FALSE(one.holds(b, 4));
  EXPECT_EQ(DeviceMemory::of(&one), nullptr);
}

// Where the address sanitizer is there, it ends the process at the write itself.
TEST(DeviceMemoryDeathTest, FindsWritesBeyondABlock) {
  for (const int64_t beyond : {0, 3, 255}) {
    DeviceMemory memory({});
    auto* const block = static_cast<volatile char*>(memory.allocate(400));
    memory.allocate(8);
    if (kSanitized) {
      EXPECT_DEATH(block[400 + beyond] = 1, "AddressSanitizer");
      continue;
    }
    block[400 + beyond] = 1;
    EXPECT_THAT(bug_of([&] { memory.check("kernel_x (call 3 on stream 0)"); }),
                HasSubstr(str_cat("kernel_x (call 3 on stream 0) writes byte ", beyond,
                                  " past the end of block 1 (400 bytes)")));
  }
}

TEST(DeviceMemoryDeathTest, FindsWritesAfterARelease) {
  DeviceMemory memory({});
  auto* const block = static_cast<char*>(memory.allocate(400));
  memory.release(block);
  if (kSanitized) {
    EXPECT_DEATH(static_cast<volatile char*>(block)[17] = 1, "AddressSanitizer");
    return;
  }
  EXPECT_TRUE(all_nan(block, 400)) << "who reads it gets NaN";
  block[17] = 1;
  EXPECT_THAT(bug_of([&] { memory.allocate(100); }), HasSubstr("was written after it had been released"));
}

TEST(DeviceMemory, RefusesWhatItDidNotHandOut) {
  DeviceMemory memory({});
  auto* const block = static_cast<char*>(memory.allocate(400));
  EXPECT_THAT(bug_of([&] { memory.release(block + 1); }), HasSubstr("never handed out: byte 1 of block 1"));
  memory.release(block);
  EXPECT_THAT(bug_of([&] { memory.release(block); }), HasSubstr("never handed out"));
}

TEST(DeviceMemory, RunsOutWithALineForTheUser) {
  DeviceMemory memory({.owner = "device 0", .max_bytes = 4096});
  memory.allocate(1000);
  try {
    memory.allocate(10000);
    ADD_FAILURE();
  } catch (const ashlar::Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kResource);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("10000 bytes are asked for"), HasSubstr("device 0 has 4096")));
  }
}

TEST(DeviceMemoryDeathTest, FindsWritesOfWorkBeyondOtherMemory) {
  if (kSanitized) GTEST_SKIP() << "the address sanitizer ends the process at the write";
  DeviceMemory managed({.owner = "test memory"});
  auto* const x = static_cast<float*>(managed.allocate(5 * sizeof(float)));
  VirtualGpu gpu({});
  const std::unique_ptr<Stream> stream = gpu.make_stream();
  gpu.queue(
      "fill", [x] { std::fill_n(x, 6, 1.0F); }, *stream);
  EXPECT_THAT(bug_of([&] { stream->synchronize(); }),
              HasSubstr("fill (call 1 on stream 0) writes byte 0 past the end of block 1 (20 bytes) of test memory"));
}

TEST(DeviceMemoryDeathTest, NamesWorkThatGoesAstray) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto dies = [](const std::function<void(char*)>& stray, const std::string& words) {
    EXPECT_DEATH(
        {
          VirtualGpu gpu({});
          const std::unique_ptr<Stream> stream = gpu.make_stream();
          auto* const x = static_cast<char*>(gpu.memory().allocate(64));
          gpu.queue(
              "stray", [&] { stray(x); }, *stream);
          stream->synchronize();
        },
        words);
  };
  static constexpr volatile uintptr_t wild = 16;  // the compiler knows no better
  dies([](char*) { *reinterpret_cast<volatile int*>(wild) = 1; },
       "stray .call 1 on stream 0. touches address 0x10, where no memory is");
  dies([](char* x) { static_cast<volatile char*>(x)[1 << 20] = 1; },
       "stray .call 1 on stream 0. touches memory that is not handed out of device 0");
}

/// A device with queued work on a block of memory.
struct Busy {
  VirtualGpu gpu{{.name = "device 0", .seed = 3}};
  std::unique_ptr<Stream> stream = gpu.make_stream();
  float* x = static_cast<float*>(gpu.memory().allocate(64 * sizeof(float)));
  MutView view{x, DType::kFloat32, 1, 64, 64};
  float host[64] = {};

  void fill(float value) {
    gpu.queue(
        "fill", [at = x, value] { std::fill_n(at, 64, value); }, *stream,
        [&](const auto& touch) { touch(view, true); });
  }
};

TEST(DeviceMemory, StaysAsItIsWhileQueuedWorkUsesIt) {
  Busy busy;
  float sum = 0;
  busy.fill(2);
  busy.gpu.queue(
      "sum", [&sum, x = busy.x] { sum = x[0] + x[63]; }, *busy.stream);
  busy.gpu.announce("sum", *busy.stream, [&](const auto& touch) { touch(busy.view, false); });
  busy.gpu.memory().release(busy.x);  // given back, as a tape does, before the work has run
  auto* const again = static_cast<float*>(busy.gpu.memory().allocate(40));  // and handed out again
  EXPECT_EQ(again, busy.x);
  busy.stream->synchronize();
  EXPECT_EQ(sum, 4);
  busy.gpu.memory().release(again);
  if (kSanitized) return;  // it lets nobody look
  busy.gpu.memory().open();
  EXPECT_TRUE(all_nan(again, 40));
  busy.gpu.memory().close();
}

// Four ways of the host to touch what is the device's.
TEST(DeviceMemoryDeathTest, EndsTheProcessWhereTheHostTouchesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto dies = [&](const std::function<void(Busy&)>& touch, const std::string& words) {
    EXPECT_DEATH(
        {
          Busy busy;
          touch(busy);
        },
        words);
  };
  const auto read = [](Busy& busy, int i) {
    const float value = static_cast<volatile float*>(busy.x)[i];
    std::fprintf(stderr, "read %g\n", static_cast<double>(value));
  };
  dies([&](Busy& b) { read(b, 63); },
       "the host touches byte 252 of block 1 .256 bytes. of device 0, that no call has touched");
  dies(
      [&](Busy& b) {
        b.fill(1);
        static_cast<volatile float*>(b.x)[2] = 3;
      },
      "the host touches byte 8 .* that fill .call 1 on stream 0. writes");
  dies([&](Busy& b) { std::memcpy(b.host, b.x, sizeof(b.host)); },
       "the host touches byte 0 .*, in .*device_memory_test.cpp:");
  dies(
      [&](Busy& b) {
        b.fill(1);
        b.stream->synchronize();  // its call has run: it is the device's all the same
        read(b, 0);
      },
      "the host touches byte 0 .*address 0x20.*, in .*device_memory_test.cpp:");
  dies(
      [&](Busy& b) {
        b.gpu.host_function(
            "log", [&] { read(b, 1); }, *b.stream);
        b.stream->synchronize();
      },
      "the host touches byte 4 .*last calls queued: log .call 1");
}

}  // namespace
}  // namespace ashlar::emulator
