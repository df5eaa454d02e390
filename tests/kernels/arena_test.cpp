#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"
#include "core/base/strings.h"
#include "kernels/cpu/arena_allocator.h"

/// Of the address sanitizer's runtime, where the program has it.
extern "C" __attribute__((weak)) int __asan_address_is_poisoned(const volatile void* address);

namespace ashlar::cpu {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Arena, LowestAddressFirstAndMergedHoles) {
  ArenaAllocator arena(MemoryKind::kActivations);
  char* a = static_cast<char*>(arena.allocate(1000));
  char* b = static_cast<char*>(arena.allocate(256));
  char* c = static_cast<char*>(arena.allocate(1));
  EXPECT_EQ(b - a, 1024);
  EXPECT_EQ(c - b, 256);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0U);
  EXPECT_EQ(arena.used_bytes(), 1024 + 256 + 256);
  EXPECT_EQ(arena.high_water_bytes(), 1536);
  arena.release(a);
  arena.release(b);  // merges with the hole before it
  EXPECT_EQ(arena.allocate(1280), a);
  arena.release(a);
  EXPECT_EQ(arena.allocate(1281), c + 256) << "too large for the hole";
  arena.release(c);  // merges on both sides only where there are holes
  EXPECT_EQ(arena.allocate(1536), a);
  EXPECT_EQ(arena.high_water_bytes(), 1536 + 1536);
}

TEST(Arena, ReservedMemoryIsThereAndNotUsed) {
  ArenaAllocator arena(MemoryKind::kActivations);
  void* small = arena.allocate(1000);
  arena.reserve(200 * kMiB);
  EXPECT_EQ(arena.used_bytes(), 1024);
  EXPECT_EQ(arena.high_water_bytes(), 1024);
  const int64_t calls = arena.num_system_calls();
  char* const block = static_cast<char*>(arena.allocate(150 * kMiB));
  std::memset(block, 1, 150 * kMiB);
  void* const rest = arena.allocate(50 * kMiB);
  EXPECT_EQ(arena.num_system_calls(), calls) << "nothing more was asked of the system";
  for (void* p : {small, static_cast<void*>(block), rest}) arena.release(p);
  EXPECT_THROW(arena.reserve(int64_t{1} << 55), Error);
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(Arena, ZeroBytesIsABlock) {
  ArenaAllocator arena(MemoryKind::kWorkspace);
  void* a = arena.allocate(0);
  void* b = arena.allocate(0);
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
  arena.release(nullptr);
  arena.release(a);
  arena.release(b);
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(Arena, RandomTrafficNeverOverlapsAndEndsEmpty) {
  ArenaAllocator arena(MemoryKind::kActivations);
  struct Block {
    uint8_t* data;
    int64_t size;
    uint8_t mark;
  };
  std::vector<Block> live;
  for (uint64_t i = 0; i < 4000; ++i) {
    const auto words = Philox::block(1, 2, i);
    if (live.size() < 40 && words[0] % 2 == 0) {
      const int64_t size = words[1] % 5000;
      const Block block{static_cast<uint8_t*>(arena.allocate(size)), size, static_cast<uint8_t>(i)};
      std::memset(block.data, block.mark, static_cast<size_t>(size));
      live.push_back(block);
    } else if (!live.empty()) {
      const size_t at = words[1] % live.size();
      for (int64_t b = 0; b < live[at].size; ++b) ASSERT_EQ(live[at].data[b], live[at].mark);
      arena.release(live[at].data);
      live.erase(live.begin() + static_cast<int64_t>(at));
    }
  }
  for (const Block& block : live) arena.release(block.data);
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_LE(arena.high_water_bytes(), 60 * 5120) << "first fit must not scatter";
  void* all = arena.allocate(arena.high_water_bytes());
  arena.release(all);
  EXPECT_LE(arena.high_water_bytes(), 60 * 5120) << "the holes must have merged";
}

TEST(Arena, ARepeatedStepAsksTheSystemForNothing) {
  ArenaAllocator arena(MemoryKind::kActivations);
  int64_t calls = 0;
  int64_t high = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<void*> blocks;
    for (int64_t i = 1; i <= 20; ++i) blocks.push_back(arena.allocate(i * 1'000'000));
    for (void* block : blocks) arena.release(block);
    if (step == 0) {
      calls = arena.num_system_calls();
      high = arena.high_water_bytes();
    }
    EXPECT_EQ(arena.num_system_calls(), calls);
    EXPECT_EQ(arena.high_water_bytes(), high);
  }
  EXPECT_GE(high, 210'000'000);
  EXPECT_LE(high, 210'000'000 + 20 * 256);
}

TEST(Arena, ExhaustionNamesKindAndSizes) {
  ArenaAllocator arena(MemoryKind::kGradients, 4096);
  void* block = arena.allocate(3000);
  try {
    arena.allocate(2000);
    FAIL() << "2000 bytes beside 3000 do not fit into 4096";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kResource);
    const std::string text = error.what();
    for (const char* part : {"gradients", "2000", "3072", "4096"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
  arena.release(block);
  EXPECT_NE(arena.allocate(4096), nullptr) << "a refused request leaves the arena usable";
}

int64_t address_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

TEST(Arena, AddressesAreTakenAsTheyAreNeeded) {
  if (__asan_address_is_poisoned != nullptr) GTEST_SKIP() << "the address sanitizer takes addresses of its own";
  const int64_t before = address_bytes();
  std::vector<std::unique_ptr<ArenaAllocator>> arenas;
  for (int kind = 0; kind < kNumMemoryKinds; ++kind)
    arenas.push_back(std::make_unique<ArenaAllocator>(static_cast<MemoryKind>(kind)));
  EXPECT_LT(address_bytes() - before, kMiB);
  for (const auto& arena : arenas) arena->allocate(1000);
  EXPECT_LT(address_bytes() - before, 6 * 40 * kMiB);
  int64_t held = 1000;
  for (int i = 0; i < 30; ++i) {
    arenas[0]->allocate(10 * kMiB);  // not touched
    held += 10 * kMiB;
    ASSERT_LT(address_bytes() - before, 2 * held + 6 * 40 * kMiB);
  }
  arenas.clear();
  EXPECT_LT(address_bytes() - before, kMiB) << "and given back";
}

// Blocks of several ranges: apart, whole, in the same order in every step, and what is asked for at once in one piece.
TEST(Arena, ManyRangesAreOneArena) {
  ArenaAllocator arena(MemoryKind::kActivations);
  const std::vector<int64_t> sizes = {20 * kMiB, 30 * kMiB, 1, 100 * kMiB, 5 * kMiB, 70 * kMiB, 3 * kMiB};
  std::vector<char*> first;
  int64_t calls = 0, high = 0;
  for (int step = 0; step < 3; ++step) {
    std::vector<char*> blocks;
    for (const int64_t size : sizes) blocks.push_back(static_cast<char*>(arena.allocate(size)));
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[i]) % 256, 0U);
      blocks[i][0] = blocks[i][sizes[i] - 1] = static_cast<char>(i);
      for (size_t k = 0; k < i; ++k)
        EXPECT_TRUE(blocks[i] + sizes[i] <= blocks[k] || blocks[k] + sizes[k] <= blocks[i]) << i << " and " << k;
    }
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(blocks[i][sizes[i] - 1], static_cast<char>(i));
    if (step == 0) {
      first = blocks;
      calls = arena.num_system_calls();
      high = arena.high_water_bytes();
    }
    EXPECT_EQ(blocks, first);
    EXPECT_EQ(arena.num_system_calls(), calls);
    EXPECT_EQ(arena.high_water_bytes(), high);
    for (char* block : blocks) arena.release(block);
  }
  EXPECT_EQ(arena.used_bytes(), 0);
  EXPECT_GE(high, 228 * kMiB);
  EXPECT_LT(high, 260 * kMiB) << "what a range has left at its end was never touched";
}

TEST(Arena, MoreThanTheMachineHasIsRefusedBeforeItIsTouched) {
  ArenaAllocator arena(MemoryKind::kParameters);
  for (const int64_t bytes : {int64_t{200} << 40, std::numeric_limits<int64_t>::max()}) {
    try {
      arena.allocate(bytes);
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kResource);
      EXPECT_THAT(error.what(),
                  ::testing::HasSubstr(str_cat("asked for ", bytes, " bytes with 0 in use, the system has ")));
      EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("limit of")))
          << "what was reserved is nothing that the user can change";
    }
  }
  EXPECT_NE(arena.allocate(1000), nullptr);
}

/// Lets this process take `bytes` of addresses beyond those that it has, and all of them again at its end.
class LimitedAddresses {
 public:
  explicit LimitedAddresses(int64_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limited = before_;
    limited.rlim_cur = static_cast<rlim_t>(address_bytes() + bytes);
    set_ = setrlimit(RLIMIT_AS, &limited) == 0;
  }
  ~LimitedAddresses() { setrlimit(RLIMIT_AS, &before_); }
  LimitedAddresses(const LimitedAddresses&) = delete;
  bool set() const { return set_; }

 private:
  rlimit before_{};
  bool set_ = false;
};

TEST(Arena, ALimitOfAddressesIsNamedAndUsedToItsEnd) {
  if (__asan_address_is_poisoned != nullptr) GTEST_SKIP() << "the address sanitizer needs addresses of its own";
  std::string text;
  bool small = false;
  {
    const LimitedAddresses limited(60 * kMiB);
    ASSERT_TRUE(limited.set());
    ArenaAllocator arena(MemoryKind::kOptimizer);
    arena.allocate(20 * kMiB);  // a range of 32 MiB
    try {
      arena.allocate(100 * kMiB);
    } catch (const Error& error) {
      text = error.what();
      EXPECT_EQ(error.code(), ExitCode::kResource);
    }
    small = arena.allocate(16 * kMiB) != nullptr;  // too much for the first range, for another of 32 MiB, too
  }
  EXPECT_TRUE(small);
  EXPECT_THAT(text,
              ::testing::HasSubstr("out of memory for optimizer: asked for 104857600 bytes with 20971520 in use"));
  EXPECT_THAT(text, ::testing::HasSubstr("MiB of address space, limit "));
  EXPECT_THAT(text, ::testing::HasSubstr("(ulimit -v "));
}

TEST(Arena, ReleasingTwiceIsABug) {
  ArenaAllocator arena(MemoryKind::kWorkspace);
  void* block = arena.allocate(64);
  arena.release(block);
  EXPECT_THROW(arena.release(block), Bug);
}

TEST(Arena, OnlyAllocatedBytesMayBeTouched) {
  if (__asan_address_is_poisoned == nullptr) GTEST_SKIP() << "the address sanitizer alone watches it";
  ArenaAllocator arena(MemoryKind::kActivations);
  char* block = static_cast<char*>(arena.allocate(100));
  EXPECT_FALSE(__asan_address_is_poisoned(block));
  EXPECT_FALSE(__asan_address_is_poisoned(block + 99));
  EXPECT_TRUE(__asan_address_is_poisoned(block + 100));
  arena.release(block);
  EXPECT_TRUE(__asan_address_is_poisoned(block));
}

}  // namespace
}  // namespace ashlar::cpu
