// cp.async and mbarrier: what has arrived, when, and nothing earlier.
#include <cmath>

#include "tests/gpu/conformance/ptx.h"
#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::emulated {
namespace {

// 0xff bytes are a NaN; what arrived is a number.
constexpr float kHere = 1, kNotYet = 0;
float seen(float value) { return std::isnan(value) ? kNotYet : kHere; }

template <int kBytes>
void copy(const char* from, char* to, int source_bytes) {
  ASHLAR_SHARED(float4, staged, [32]);
  char* const own = reinterpret_cast<char*>(&staged[threadIdx.x]);
  cp_async<kBytes>(shared_address(own), from + kBytes * threadIdx.x, source_bytes);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  for (int i = 0; i < kBytes; ++i) to[kBytes * threadIdx.x + static_cast<unsigned>(i)] = own[i];
}

// Three groups of one float each, and one that is not committed; what is there after each wait.
void groups(const float* from, float* out) {
  ASHLAR_SHARED(float, staged, [4][32]);
  const unsigned i = threadIdx.x;
  float* const row = out + 16 * i;
  for (int group = 0; group < 3; ++group) {
    cp_async<4>(shared_address(&staged[group][i]), from + group, 4);
    cp_async_commit_group();
  }
  cp_async<4>(shared_address(&staged[3][i]), from + 3, 4);
  const auto look = [&](int wait) {
    for (int group = 0; group < 4; ++group) row[4 * wait + group] = seen(staged[group][i]);
  };
  cp_async_wait_group<3>();
  look(0);
  cp_async_wait_group<1>();
  look(1);
  cp_async_wait_group<0>();
  look(2);
  cp_async_commit_group();
  cp_async_wait_group<0>();
  look(3);
}

// Warp 0 fills, warp 1 takes, four rounds through one buffer, ordered by two mbarriers.
void pipeline(float* out) {
  ASHLAR_SHARED(uint64_t, barriers, [2]);
  ASHLAR_SHARED(float, buffer, [32]);
  const uint32_t full = shared_address(&barriers[0]), empty = shared_address(&barriers[1]);
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    mbarrier_init(full, 32);
    mbarrier_init(empty, 32);
  }
  __syncthreads();
  for (int round = 0; round < 4; ++round) {
    if (threadIdx.x < 32) {
      if (round > 0) mbarrier_wait_parity(empty, (round - 1) % 2);
      buffer[lane] = static_cast<float>(100 * round + static_cast<int>(lane));
      mbarrier_arrive(full);
    } else {
      mbarrier_wait_parity(full, round % 2);
      out[32 * round + static_cast<int>(lane)] = buffer[31 - lane];
      mbarrier_arrive(empty);
    }
  }
}

void expect_bytes(int* out) {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  const uint32_t full = shared_address(barrier);
  if (threadIdx.x == 0) mbarrier_init(full, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    emulator::mbarrier_arrive_expect_tx(full, 96, emulator::Loc::here());
    emulator::mbarrier_complete_tx(full, 32, emulator::Loc::here());
    out[0] = 1;
    emulator::mbarrier_complete_tx(full, 64, emulator::Loc::here());
  }
  mbarrier_wait_parity(full, 0);
  out[threadIdx.x] += 1;
}

class Async : public testing::Emulator {
 protected:
  template <int kBytes>
  void expect_copies() {
    alignas(16) char from[kBytes * 32];
    for (int i = 0; i < kBytes * 32; ++i) from[i] = static_cast<char>(i % 100 + 1);
    for (int source = 0; source <= kBytes; ++source) {
      std::vector<char> to(sizeof(from));
      run({}, {}, copy<kBytes>, source == 0 ? nullptr : from, to.data(), source);
      for (int i = 0; i < kBytes * 32; ++i)
        ASSERT_EQ(to[i], i % kBytes < source ? from[i] : 0) << i << " of " << source;
    }
  }
};

TEST_F(Async, CopiesAndFillsWithZero) {
  expect_copies<4>();
  expect_copies<8>();
  expect_copies<16>();
}

TEST_F(Async, GroupsArriveWhenTheyAreWaitedFor) {
  const std::vector<float> from = {1, 2, 3, 4};
  std::vector<float> out(32 * 16);
  run({}, {}, groups, from.data(), out.data());
  const std::vector<float> expected = {0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1};
  for (int i = 0; i < 32 * 16; ++i) ASSERT_EQ(out[i], expected[i % 16]) << i;
}

TEST_F(Async, MbarriersOrderAPipeline) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<float> out(4 * 32);
    run(schedule, {.block = 64}, pipeline, out.data());
    for (int i = 0; i < 4 * 32; ++i) ASSERT_EQ(out[i], static_cast<float>(100 * (i / 32) + 31 - i % 32));
  }
}

TEST_F(Async, MbarriersCountBytes) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(64);
    run(schedule, {.block = 64}, expect_bytes, out.data());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], i == 0 ? 2 : 1);
  }
}

}  // namespace
}  // namespace ashlar::emulated
