// Blocks, threads and their barriers under every schedule.
#include <numeric>

#include "tests/gpu/conformance/ptx.h"
#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::emulated {
namespace {

void name_threads(int* out) {
  const int64_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int64_t at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[at] += static_cast<int>(at);
}

// Each thread takes its right neighbour's value, 20 times.
void rotate(int* out, int n) {
  ASHLAR_SHARED(int, values, [128]);
  const int i = static_cast<int>(threadIdx.x);
  values[i] = i;
  __syncthreads();
  for (int round = 0; round < 20; ++round) {
    const int next = values[(i + 1) % n];
    __syncthreads();
    values[i] = next;
    __syncthreads();
  }
  out[blockIdx.x * static_cast<unsigned>(n) + threadIdx.x] = values[i];
}

void vote(int* out, int limit) {
  const int i = static_cast<int>(threadIdx.x);
  const int any = __syncthreads_or(i == limit);
  const int all = __syncthreads_and(i < limit);
  const int count = __syncthreads_count(i < limit ? 7 : 0);
  out[3 * i] = any;
  out[3 * i + 1] = all;
  out[3 * i + 2] = count;
}

// Two pairs of warps, each with a barrier of its own.
void named(int* out) {
  ASHLAR_SHARED(int, values, [128]);
  const int i = static_cast<int>(threadIdx.x), pair = i / 64;
  for (int round = 0; round < 5; ++round) {
    values[i] = i + round;
    bar_sync(1 + pair, 64);
    out[i] = values[pair * 64 + 63 - i % 64];
    bar_sync(3 + pair, 64);
  }
}

// A warp fills what another one takes: arrive on one side, wait on the other.
void produce(int* out) {
  ASHLAR_SHARED(int, value, [32]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int round = 0; round < 4; ++round) {
    if (threadIdx.x < 32) {
      bar_sync(1, 64);  // it is empty
      value[lane] = round * 100 + lane;
      bar_arrive(2, 64);
    } else {
      bar_arrive(1, 64);
      bar_sync(2, 64);  // it is full
      out[round * 32 + lane] = value[31 - lane];
    }
  }
}

void dynamic(float* out, int n) {
  ASHLAR_DYNAMIC_SHARED(float, values);
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) values[i] = static_cast<float>(i);
  __syncthreads();
  if (i < n) out[i] = values[n - 1 - i];
  if (i == 0) out[n] = static_cast<float>(reinterpret_cast<uintptr_t>(values) % 128);
}

void see_poison(float* out) {
  ASHLAR_SHARED(float, values, [32]);
  ASHLAR_DYNAMIC_SHARED(double, more);
  out[threadIdx.x] = std::isnan(values[threadIdx.x]) && std::isnan(more[threadIdx.x]) ? 1.0F : 0.0F;
  values[threadIdx.x] = 0;
  more[threadIdx.x] = 0;
}

class Barriers : public testing::Emulator {};

TEST_F(Barriers, EveryThreadOfEveryBlockRunsOnce) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(2 * 3 * 4 * 64), expected(out.size());
    std::iota(expected.begin(), expected.end(), 0);
    run(schedule, {.grid = {2, 3, 4}, .block = {4, 8, 2}}, name_threads, out.data());
    EXPECT_EQ(out, expected) << policy_name(schedule.policy);
  }
}

TEST_F(Barriers, SyncthreadsKeepsRoundsApart) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(3 * 128);
    run(schedule, {.grid = 3, .block = 128}, rotate, out.data(), 128);
    for (int i = 0; i < 128; ++i) ASSERT_EQ(out[2 * 128 + i], (i + 20) % 128) << policy_name(schedule.policy);
  }
}

TEST_F(Barriers, Votes) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    for (const int limit : {0, 1, 63, 64}) {
      std::vector<int> out(3 * 64);
      run(schedule, {.block = 64}, vote, out.data(), limit);
      for (int i = 0; i < 64; ++i) {
        ASSERT_EQ(out[3 * i], limit < 64);
        ASSERT_EQ(out[3 * i + 1], limit == 64);
        ASSERT_EQ(out[3 * i + 2], limit);
      }
    }
  }
}

TEST_F(Barriers, NamedBarriersOfPairsOfWarps) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(128);
    run(schedule, {.block = 128}, named, out.data());
    for (int i = 0; i < 128; ++i) ASSERT_EQ(out[i], i / 64 * 64 + 63 - i % 64 + 4);
  }
}

TEST_F(Barriers, ArriveWithoutWaiting) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(128);
    run(schedule, {.block = 64}, produce, out.data());
    for (int i = 0; i < 128; ++i) ASSERT_EQ(out[i], i / 32 * 100 + 31 - i % 32);
  }
}

TEST_F(Barriers, DynamicSharedMemoryIsExactlyAligned) {
  for (const int n : {1, 31, 64}) {
    std::vector<float> out(n + 1);
    run({}, {.block = 64, .shared_bytes = n * 4}, dynamic, out.data(), n);
    for (int i = 0; i < n; ++i) ASSERT_EQ(out[i], static_cast<float>(n - 1 - i));
    EXPECT_EQ(out[n], 0) << "aligned to 128";
  }
}

TEST_F(Barriers, SharedMemoryIsNaNInEachBlock) {
  std::vector<float> out(32);
  run({}, {.grid = 3, .shared_bytes = 32 * 8}, see_poison, out.data());
  EXPECT_THAT(out, ::testing::Each(1.0F));
}

TEST_F(Barriers, RandomSchedulesDifferAndRepeat) {
  const auto trace = [&](emulator::Schedule schedule) {
    std::vector<int> order(128, -1);
    int count = 0;
    struct {
      int* order;
      int* count;
    } log{order.data(), &count};
    run(
        schedule, {.grid = 2, .block = 64},
        +[](decltype(log) l) {
          l.order[(*l.count)++] = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
          __syncthreads();
        },
        log);
    return order;
  };
  using emulator::Policy;
  std::vector<std::vector<int>> orders;
  for (const emulator::Schedule& schedule : testing::schedules()) {
    orders.push_back(trace(schedule));
    EXPECT_EQ(orders.back(), trace(schedule));
  }
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(orders[i], orders[j]) << i << " " << j;
  }
}

}  // namespace
}  // namespace ashlar::emulated
