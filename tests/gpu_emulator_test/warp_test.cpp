// Shuffles, votes and reductions against what the programming guide says of each lane.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/dev/ptx.h"
#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::emulated {
namespace {

struct Wide {
  double a;
  int b;
  bool operator==(const Wide&) const = default;
};

template <typename T>
T value_of(int lane) {
  if constexpr (std::is_same_v<T, Wide>) {
    return {.a = lane * 1.5, .b = -lane};
  } else {
    return static_cast<T>(lane * 3 + 1);
  }
}

template <typename T>
void shuffles(T* out, int argument, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T value = value_of<T>(lane);
  T* row = out + 4 * threadIdx.x;
  row[0] = __shfl_sync(0xffffffffU, value, argument, width);
  row[1] = __shfl_up_sync(0xffffffffU, value, static_cast<unsigned>(argument), width);
  row[2] = __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(argument), width);
  row[3] = __shfl_xor_sync(0xffffffffU, value, argument, width);
}

// Lanes of one half each, in branches that run apart.
void halves(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < 16) {
    out[threadIdx.x] = __shfl_xor_sync(0x0000ffffU, lane, 15);
  } else {
    out[threadIdx.x] = __shfl_sync(0xffff0000U, lane, 16);
  }
  __syncwarp();
  out[threadIdx.x] += 100 * __shfl_sync(0xffffffffU, lane, 31 - lane);
}

// A message through shared memory, ordered by __syncwarp alone.
void pass_on(int* out) {
  ASHLAR_SHARED(int, values, [64]);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int round = 0; round < 10; ++round) {
    values[warp * 32 + lane] = round * 32 + lane;
    __syncwarp();
    out[threadIdx.x] = values[warp * 32 + (lane + 7) % 32];
    __syncwarp();
  }
}

struct Counts {
  unsigned ballot;
  int any, all;
  unsigned add, min, max, all_bits, any_bits, odd_bits;
  int signed_add, signed_min, signed_max;
};

void count(Counts* out, const unsigned* values, unsigned mask) {
  const unsigned lane = threadIdx.x;
  if ((mask >> lane & 1) == 0) return;
  const unsigned v = values[lane];
  out[lane] = {.ballot = __ballot_sync(mask, static_cast<int>(v & 4)),
               .any = __any_sync(mask, v == values[31]),
               .all = __all_sync(mask, v != 0),
               .add = __reduce_add_sync(mask, v),
               .min = __reduce_min_sync(mask, v),
               .max = __reduce_max_sync(mask, v),
               .all_bits = __reduce_and_sync(mask, v),
               .any_bits = __reduce_or_sync(mask, v),
               .odd_bits = __reduce_xor_sync(mask, v),
               .signed_add = __reduce_add_sync(mask, static_cast<int>(v)),
               .signed_min = __reduce_min_sync(mask, static_cast<int>(v)),
               .signed_max = __reduce_max_sync(mask, static_cast<int>(v))};
}

class Warps : public testing::Emulator {};

template <typename T>
class ShuffleTypes : public testing::Emulator {};
using Types = ::testing::Types<int, unsigned, float, double, long long, uint16_t, Wide>;
TYPED_TEST_SUITE(ShuffleTypes, Types);

TYPED_TEST(ShuffleTypes, EveryWidthAndArgument) {
  for (const int width : {1, 2, 8, 32}) {
    for (const int argument : {0, 1, 3, 7, 16, 31}) {
      std::vector<TypeParam> out(64 * 4);
      this->run({.policy = emulator::Policy::kRandom}, {.block = 64}, shuffles<TypeParam>, out.data(), argument, width);
      for (int thread = 0; thread < 64; ++thread) {
        const int lane = thread % 32, first = lane / width * width, end = first + width;
        const auto or_own = [&](int source, bool valid) { return value_of<TypeParam>(valid ? source : lane); };
        ASSERT_EQ(out[4 * thread], value_of<TypeParam>(first + argument % width));
        ASSERT_EQ(out[4 * thread + 1], or_own(lane - argument, lane - argument >= first));
        ASSERT_EQ(out[4 * thread + 2], or_own(lane + argument, lane + argument < end));
        ASSERT_EQ(out[4 * thread + 3], or_own(lane ^ argument, (lane ^ argument) < end));
      }
    }
  }
}

TEST_F(Warps, PartsOfAWarpRunApart) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(96);
    run(schedule, {.block = 96}, halves, out.data());
    for (int i = 0; i < 96; ++i) {
      const int lane = i % 32;
      ASSERT_EQ(out[i], 100 * (31 - lane) + (lane < 16 ? 15 - lane : 16)) << policy_name(schedule.policy);
    }
  }
}

TEST_F(Warps, SyncwarpOrdersSharedMemory) {
  for (const emulator::Schedule& schedule : testing::schedules()) {
    std::vector<int> out(64);
    run(schedule, {.block = 64}, pass_on, out.data());
    for (int i = 0; i < 64; ++i) ASSERT_EQ(out[i], 9 * 32 + (i % 32 + 7) % 32);
  }
}

TEST_F(Warps, VotesAndReductions) {
  std::vector<unsigned> values(32);
  for (int i = 0; i < 32; ++i) values[i] = 0x9e3779b9U * static_cast<unsigned>(i * i + 1);
  for (const emulator::Schedule& schedule : testing::schedules()) {
    for (const unsigned mask : {0xffffffffU, 1U, 0x80000000U, 0x0f0f1234U, 0xfffffffeU}) {
      std::vector<Counts> out(32);
      run(schedule, {}, count, out.data(), values.data(), mask);
      Counts expected{.all = 1, .min = ~0U, .all_bits = ~0U, .signed_min = INT32_MAX, .signed_max = INT32_MIN};
      for (int i = 0; i < 32; ++i) {
        if ((mask >> i & 1) == 0) continue;
        const unsigned v = values[i];
        const int s = static_cast<int>(v);
        expected.ballot |= (v & 4) != 0 ? 1U << i : 0;
        expected.any |= v == values[31];
        expected.all &= v != 0;
        expected.add += v;
        expected.min = std::min(expected.min, v);
        expected.max = std::max(expected.max, v);
        expected.all_bits &= v;
        expected.any_bits |= v;
        expected.odd_bits ^= v;
        expected.signed_min = std::min(expected.signed_min, s);
        expected.signed_max = std::max(expected.signed_max, s);
      }
      expected.signed_add = static_cast<int>(expected.add);
      for (int i = 0; i < 32; ++i) {
        if ((mask >> i & 1) == 0) continue;
        ASSERT_EQ(std::memcmp(&out[i], &expected, sizeof(Counts)), 0) << "lane " << i << " of mask " << mask;
      }
    }
  }
}

}  // namespace
}  // namespace ashlar::emulated
