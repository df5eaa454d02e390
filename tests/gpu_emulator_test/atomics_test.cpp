// Atomics against what the programming guide says of each: the old value given back, the new one left in memory.
#include <algorithm>

#include "kernels/cuda/dev/ptx.h"
#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::emulated {
namespace {

enum Op { kAdd, kMin, kMax, kOr, kAnd, kExchange, kSwapAsExpected, kSwapNotAsExpected, kNumOps };

// Every operation on a place of its own: at[op] holds `start`, old[op] gets what the call gives back.
template <typename T>
void all_of_them(T* at, T* old, T start, T value) {
  if (threadIdx.x != 0) return;
  old[kAdd] = atomicAdd(at + kAdd, value);
  old[kMin] = atomicMin(at + kMin, value);
  old[kMax] = atomicMax(at + kMax, value);
  old[kOr] = atomicOr(at + kOr, value);
  old[kAnd] = atomicAnd(at + kAnd, value);
  old[kExchange] = atomicExch(at + kExchange, value);
  old[kSwapAsExpected] = atomicCAS(at + kSwapAsExpected, start, value);
  old[kSwapNotAsExpected] = atomicCAS(at + kSwapNotAsExpected, value, value);
}

// As floating point has them.
template <typename T>
void sum(T* at, T* old, T value) {
  if (threadIdx.x == 0) *old = atomicAdd(at, value);
}
void exchange(float* at, float* old, float value) {
  if (threadIdx.x == 0) *old = atomicExch(at, value);
}

// Each thread hangs itself in front of a list, and takes as many tickets as it may.
void chain(int* head, int* next, unsigned* tickets, unsigned* counter) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  next[thread] = atomicExch(head, thread);
  for (int i = 0; i < 3; ++i) tickets[3 * thread + i] = atomicAdd(counter, 2);
}

// A sum without atomicAdd: tried again until nobody else came in between.
void add_by_swaps(unsigned long long* sum, int* tries) {
  const unsigned long long mine = 1ULL << (threadIdx.x % 60);
  unsigned long long seen = 0, old = 0;
  do {
    seen = old;
    old = atomicCAS(sum, seen, seen + mine);
    ++tries[threadIdx.x];
  } while (old != seen);
}

class Atomics : public testing::Emulator {
 protected:
  /// `start` and `value` in, what each operation must leave out.
  template <typename T>
  void expect(T start, T value, const std::vector<T>& left) {
    std::vector<T> at(kNumOps, start), old(kNumOps);
    run({}, {}, all_of_them<T>, at.data(), old.data(), start, value);
    EXPECT_EQ(old, std::vector<T>(kNumOps, start));
    EXPECT_EQ(at, left);
  }
};

TEST_F(Atomics, IntegersAreChangedAsTheirTypeSays) {
  expect<int>(-4, 3, {-1, -4, 3, -1, 0, 3, 3, -4});
  expect<int>(12, 10, {22, 10, 12, 14, 8, 10, 10, 12});
  expect<unsigned>(0xfffffffcU, 3, {0xffffffffU, 3, 0xfffffffcU, 0xffffffffU, 0, 3, 3, 0xfffffffcU});
  expect<unsigned>(0xfffffffcU, 5, {1, 5, 0xfffffffcU, 0xfffffffdU, 4, 5, 5, 0xfffffffcU});
  const unsigned long long high = 0x8000000000000001ULL;
  expect<unsigned long long>(high, 3, {high + 3, 3, high, high + 2, 1, 3, 3, high});
  expect<unsigned long long>(3, high, {high + 3, 3, high, high + 2, 1, high, high, 3});
}

TEST_F(Atomics, FloatingPointIsAddedAndExchanged) {
  float f = 1.5F, f_old = 0;
  run({}, {}, sum<float>, &f, &f_old, 0x1p-23F);
  EXPECT_EQ(f_old, 1.5F);
  EXPECT_EQ(f, 1.5F + 0x1p-23F);
  run({}, {}, exchange, &f, &f_old, -7.25F);
  EXPECT_EQ(f_old, 1.5F + 0x1p-23F);
  EXPECT_EQ(f, -7.25F);
  double d = 1.5, d_old = 0;
  run({}, {}, sum<double>, &d, &d_old, 0x1p-52);
  EXPECT_EQ(d_old, 1.5);
  EXPECT_EQ(d, 1.5 + 0x1p-52) << "not through a float";
}

TEST_F(Atomics, NobodysChangeIsLost) {
  constexpr int kThreads = 3 * 64;
  for (const emulator::Schedule& schedule : testing::schedules()) {
    int head = -1;
    unsigned counter = 10;
    std::vector<int> next(kThreads);
    std::vector<unsigned> tickets(3 * kThreads);
    run(schedule, {.grid = 3, .block = 64}, chain, &head, next.data(), tickets.data(), &counter);
    int length = 0;
    for (int at = head; at >= 0 && length <= kThreads; at = next[static_cast<size_t>(at)]) ++length;
    EXPECT_EQ(length, kThreads) << "every thread hangs in the list once";
    std::sort(tickets.begin(), tickets.end());
    for (size_t i = 0; i < tickets.size(); ++i) ASSERT_EQ(tickets[i], 10 + 2 * i);
    EXPECT_EQ(counter, 10 + 2 * tickets.size());
  }
}

TEST_F(Atomics, ASwapThatCameTooLateIsSeen) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    unsigned long long sum = 0;
    std::vector<int> tries(32);
    run(schedule, {.grid = 1, .block = 32}, add_by_swaps, &sum, tries.data());
    EXPECT_EQ(sum, 0xffffffffULL);
    EXPECT_GT(*std::max_element(tries.begin(), tries.end()), 1) << "all of them expected 0 at first";
  }
}

}  // namespace
}  // namespace ashlar::emulated
