// Kernels with one mistake each that the plain build finds: what is undefined is refused, and the report says where.
// Lines are named by their distance from the kernel's first.
#include <cmath>

#include "tests/gpu/conformance/ptx.h"
#include "tests/gpu_emulator_test/emulator_test.h"

namespace ashlar::emulated {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Faults : public testing::Emulator {};

// The place of the `offset`-th line after a kernel's marker.
std::string at(int line) { return str_cat("fault_test.cpp:", line); }

constexpr int kDivergent = __LINE__;
void divergent_barrier() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
TEST_F(Faults, DivergentBarrier) {
  EXPECT_THAT(fault({.block = 64}, divergent_barrier),
              AllOf(HasSubstr("divergent barrier"), HasSubstr(at(kDivergent + 3)), HasSubstr(at(kDivergent + 5))));
}

constexpr int kExit = __LINE__;
void exit_before_barrier() {
  if (threadIdx.x == 37) return;
  __syncthreads();
}
TEST_F(Faults, ExitBeforeBarrier) {
  EXPECT_THAT(fault({.block = 64}, exit_before_barrier), AllOf(HasSubstr("__syncthreads"), HasSubstr(at(kExit + 3))));
}

void shuffle_from_outside(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffU, static_cast<int>(threadIdx.x), 20);
}
TEST_F(Faults, ShuffleFromOutsideOfTheMask) {
  int out[16];
  EXPECT_THAT(fault({}, shuffle_from_outside, out), HasSubstr("reads lane 20, which its mask leaves out"));
}

void full_mask_in_a_branch(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffU, 1, 1);
}
TEST_F(Faults, FullMaskWhereLanesHaveEnded) {
  int out[32];
  EXPECT_THAT(fault({}, full_mask_in_a_branch, out), ContainsRegex("have ended|ended, and other lanes wait"));
}

void not_in_own_mask() { __syncwarp(0x7fffffffU); }
TEST_F(Faults, LaneLeavesItselfOut) {
  EXPECT_THAT(fault({}, not_in_own_mask),
              HasSubstr("lane 31 calls __syncwarp with mask 0x7fffffff, which leaves it out"));
}

void masks_differ(int* out) { out[threadIdx.x] = __shfl_sync(threadIdx.x < 4 ? 0xffffffffU : 0xfffffff0U, 1, 5); }
TEST_F(Faults, MasksDiffer) {
  int out[32];
  EXPECT_THAT(fault({}, masks_differ, out), ContainsRegex("ended|names the lanes|deadlock"));
}

constexpr int kWarp = __LINE__;
void divergent_warp() {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
  } else {
    __syncwarp();
  }
}
TEST_F(Faults, DivergentWarp) {
  EXPECT_THAT(fault({}, divergent_warp),
              AllOf(HasSubstr("divergent warp"), HasSubstr(at(kWarp + 3)), HasSubstr(at(kWarp + 5))));
}

void product_by_half_a_warp() {
  uint32_t a[4] = {}, b[2] = {};
  float c[4] = {};
  if (threadIdx.x < 16) mma_m16n8k16(c, a, b, c);
}
TEST_F(Faults, ProductByHalfAWarp) { EXPECT_THAT(fault({}, product_by_half_a_warp), HasSubstr("mma.sync")); }

constexpr int kDeadlock = __LINE__;
void barrier_against_warp() {
  if (threadIdx.x < 32 && threadIdx.x != 7) __syncwarp();
  __syncthreads();
}
TEST_F(Faults, DeadlockNamesWhoWaitsWhere) {
  EXPECT_THAT(fault({.block = 64}, barrier_against_warp),
              AllOf(HasSubstr("deadlock"), HasSubstr(str_cat("31 wait in __syncwarp at ", at(kDeadlock + 2))),
                    HasSubstr(str_cat("33 wait in __syncthreads at ", at(kDeadlock + 3)))));
}

void misaligned_ldmatrix() {
  ASHLAR_SHARED(uint16_t, tile, [32 * 9]);
  uint32_t r[4];
  ldmatrix_x4(r, shared_address(tile) / 16 * 16 + 16 + 18 * threadIdx.x);
}
TEST_F(Faults, MisalignedSharedAddress) {
  EXPECT_THAT(fault({}, misaligned_ldmatrix), HasSubstr("misaligned shared address"));
}

void ldmatrix_past_the_end() {
  ASHLAR_DYNAMIC_SHARED(uint16_t, tile);
  uint32_t r[4];
  ldmatrix_x4(r, shared_address(tile) + 16 * threadIdx.x);
}
TEST_F(Faults, LdmatrixPastTheEnd) {
  EXPECT_THAT(fault({.shared_bytes = 32 * 16 - 2}, ldmatrix_past_the_end), HasSubstr("out of bounds"));
}

void copy_past_the_end(const float* from) {
  ASHLAR_SHARED(float, row, [127]);
  cp_async<16>(shared_address(row) / 16 * 16 + 16 * threadIdx.x, from + 4 * threadIdx.x, 16);
  cp_async_commit_group();
  cp_async_wait_group<0>();
}
TEST_F(Faults, CopyPastTheEnd) {
  alignas(16) float from[128] = {};
  EXPECT_THAT(fault({}, copy_past_the_end, from), HasSubstr("out of bounds"));
}

void copy_from_misaligned(const float* from) {
  ASHLAR_SHARED(float4, row, [32]);
  cp_async<16>(shared_address(&row[threadIdx.x]), from + 4 * threadIdx.x + 1, 16);
  cp_async_commit_group();
  cp_async_wait_group<0>();
}
TEST_F(Faults, CopyFromAMisalignedSource) {
  alignas(16) float from[136] = {};
  EXPECT_THAT(fault({}, copy_from_misaligned, from), HasSubstr("not aligned"));
}

void copy_not_waited_for(const float* from, float* out) {
  ASHLAR_SHARED(float, row, [32]);
  cp_async<4>(shared_address(&row[threadIdx.x]), from + threadIdx.x, 4);
  out[threadIdx.x] = row[threadIdx.x];
}
TEST_F(Faults, CopyThatNobodyWaitsFor) {
  float from[32] = {}, out[32] = {};
  EXPECT_THAT(fault({}, copy_not_waited_for, from, out), HasSubstr("cp.async is on its way"));
}

void wrong_wait_group(const float* from, float* out) {
  ASHLAR_SHARED(float, rows, [2][32]);
  for (int i = 0; i < 2; ++i) {
    cp_async<4>(shared_address(&rows[i][threadIdx.x]), from + threadIdx.x, 4);
    cp_async_commit_group();
  }
  cp_async_wait_group<1>();
  out[threadIdx.x] = rows[0][threadIdx.x] + rows[1][threadIdx.x];
  cp_async_wait_group<0>();
}
TEST_F(Faults, WrongCountOfGroupsIsNaN) {
  float from[32] = {}, out[32] = {};
  run({}, {}, wrong_wait_group, from, out);
  for (const float x : out) EXPECT_TRUE(std::isnan(x));
}

void uninitialised(float* out) {
  ASHLAR_SHARED(float, sums, [32]);
  if (threadIdx.x < 31) sums[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (const float x : sums) sum += x;
    *out = sum;
  }
}
TEST_F(Faults, UninitialisedSharedMemoryIsNaN) {
  float out = 0;
  run({}, {}, uninitialised, &out);
  EXPECT_TRUE(std::isnan(out));
}

// What the same mistake gives under all schedules: is it ever right, is it ever wrong?
template <typename Run>
std::pair<bool, bool> right_and_wrong(const Run& run_once) {
  bool right = false, wrong = false;
  for (const emulator::Schedule& schedule : testing::schedules()) (run_once(schedule) ? right : wrong) = true;
  return {right, wrong};
}

template <bool kFirst, bool kSecond>
void sum_rounds(float* out) {
  ASHLAR_SHARED(float, values, [128]);
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    values[threadIdx.x] = static_cast<float>(round + 1);
    if (kFirst) __syncthreads();
    sum += values[(threadIdx.x + 64) % 128];
    if (kSecond) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
template <bool kFirst, bool kSecond>
bool sums_are_right(emulator::Machine& machine, const emulator::Schedule& schedule) {
  std::vector<float> out(128);
  machine.run({.block = 128, .thread = emulator::bind(sum_rounds<kFirst, kSecond>, out.data())}, schedule);
  return out == std::vector<float>(128, 6.0F);
}
TEST_F(Faults, MissingBarriersAreSeenByTheSchedules) {
  EXPECT_FALSE(right_and_wrong([&](const auto& s) { return sums_are_right<true, true>(machine_, s); }).second);
  EXPECT_TRUE(right_and_wrong([&](const auto& s) { return sums_are_right<false, true>(machine_, s); }).second);
  EXPECT_TRUE(right_and_wrong([&](const auto& s) { return sums_are_right<true, false>(machine_, s); }).second);
}

void last_block_wins(int* out) {
  if (threadIdx.x == 0) *out = static_cast<int>(blockIdx.x);
}
TEST_F(Faults, TwoBlocksWriteOneAddress) {
  std::vector<int> results;
  for (const emulator::Schedule& schedule : testing::schedules()) {
    int out = 0;
    run(schedule, {.grid = 8}, last_block_wins, &out);
    results.push_back(out);
  }
  EXPECT_NE(*std::min_element(results.begin(), results.end()), *std::max_element(results.begin(), results.end()));
}

template <int kArrivals>
void wrong_arrivals() {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  const uint32_t done = shared_address(barrier);
  if (threadIdx.x == 0) mbarrier_init(done, kArrivals);
  __syncthreads();
  if (threadIdx.x < 32) mbarrier_arrive(done);
  if (threadIdx.x >= 32) mbarrier_wait_parity(done, 0);
}
TEST_F(Faults, MbarrierThatIsNeverComplete) {
  EXPECT_THAT(fault({.block = 96}, wrong_arrivals<33>),
              AllOf(HasSubstr("deadlock"), HasSubstr("64 wait in a wait for an mbarrier"), HasSubstr("32 have ended")));
}

void expect_too_much() {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  const uint32_t done = shared_address(barrier);
  if (threadIdx.x == 0) mbarrier_init(done, 1);
  __syncthreads();
  if (threadIdx.x == 0) emulator::mbarrier_arrive_expect_tx(done, 128, emulator::Loc::here());
  if (threadIdx.x == 0) emulator::mbarrier_complete_tx(done, 64, emulator::Loc::here());
  mbarrier_wait_parity(done, 0);
}
TEST_F(Faults, MbarrierThatExpectsTooManyBytes) {
  EXPECT_THAT(fault({.block = 32}, expect_too_much), AllOf(HasSubstr("deadlock"), HasSubstr("32 wait in a wait")));
}

template <int kAtInit, int kThreads>
void arrive_at_a_barrier_for() {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  const uint32_t done = shared_address(barrier);
  if (threadIdx.x == 0) mbarrier_init(done, kAtInit);
  __syncthreads();
  if (threadIdx.x < kThreads) emulator::mbarrier_arrive_expect_tx(done, 16, emulator::Loc::here());
}
TEST_F(Faults, MbarrierForNobodyOrForMoreThanItHolds) {
  EXPECT_THAT(fault({}, arrive_at_a_barrier_for<0, 0>),
              HasSubstr("mbarrier.init with 0 arrivals: expected 1 to 1048575"));
  EXPECT_THAT(fault({}, arrive_at_a_barrier_for<1 << 20, 0>), HasSubstr("mbarrier.init with 1048576 arrivals"));
}
// Their bytes have not come, so the phase goes on when its arrivals are spent.
TEST_F(Faults, MbarrierWithMoreArrivalsThanItsPhase) {
  EXPECT_THAT(fault({}, arrive_at_a_barrier_for<3, 4>),
              HasSubstr("more arrivals at an mbarrier than the 3 of its phase"));
}

void arrive_uninitialised() {
  ASHLAR_SHARED(uint64_t, barrier, [1]);
  mbarrier_arrive(shared_address(barrier));
}
TEST_F(Faults, MbarrierThatIsNotInitialised) {
  EXPECT_THAT(fault({}, arrive_uninitialised), HasSubstr("mbarrier.init"));
}

void wrong_named_barrier() {
  if (threadIdx.x < 64) bar_sync(1, threadIdx.x < 32 ? 64 : 96);
}
TEST_F(Faults, NamedBarrierOfTwoCounts) {
  EXPECT_THAT(fault({.block = 96}, wrong_named_barrier), HasSubstr("barrier 1 is of"));
}

void atomic_misaligned(char* at) { atomicAdd(reinterpret_cast<int*>(at + 1), 1); }
TEST_F(Faults, MisalignedAtomic) {
  alignas(8) char memory[8] = {};
  EXPECT_THAT(fault({}, atomic_misaligned, memory), HasSubstr("misaligned atomic"));
}

void host_pointer_as_shared(float* out) { *out = static_cast<float>(shared_address(out)); }
TEST_F(Faults, GlobalPointerAsSharedAddress) {
  float out = 0;
  EXPECT_THAT(fault({}, host_pointer_as_shared, &out), HasSubstr("not one to shared memory"));
}

void trap() {
  if (threadIdx.x == 5) __trap();
}
TEST_F(Faults, Trap) { EXPECT_THAT(fault({}, trap), HasSubstr("thread (5,0,0)")); }

void statics_of_48_kib() {
  ASHLAR_SHARED(float, a, [6 * 1024]);
  ASHLAR_SHARED(float, b, [6 * 1024]);
  a[threadIdx.x] = b[threadIdx.x] = 0;
}
void statics_of_more() {
  ASHLAR_SHARED(float, a, [6 * 1024]);
  ASHLAR_SHARED(float, b, [6 * 1024 + 1]);
  a[threadIdx.x] = b[threadIdx.x] = 0;
}
TEST_F(Faults, TooMuchSharedMemory) {
  constexpr int64_t kLimit = 227 * 1024, kStatic = 48 * 1024;
  run({}, {.shared_bytes = kLimit - kStatic}, statics_of_48_kib);
  EXPECT_THAT(fault({.shared_bytes = kLimit - kStatic + 1}, statics_of_48_kib), HasSubstr("too much shared memory"));
  EXPECT_THAT(fault({}, statics_of_more), HasSubstr("too much shared memory"));
  EXPECT_THAT(fault({.shared_bytes = kLimit + 1}, not_in_own_mask), HasSubstr("too much shared memory"));
}

void none() {}
void no_dynamic_shared() {
  ASHLAR_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = 0;
}
TEST_F(Faults, LaunchesThatNoGpuTakes) {
  EXPECT_THAT(fault({.block = 33}, none), HasSubstr("a multiple of 32"));
  EXPECT_THAT(fault({.block = 1056}, none), HasSubstr("expected 1 to 1024"));
  EXPECT_THAT(fault({.block = {1, 1, 96}}, none), HasSubstr("at most 64 in z"));
  EXPECT_THAT(fault({.grid = {1, 65536}}, none), HasSubstr("at most 65535"));
  EXPECT_THAT(fault({.grid = 0}, none), HasSubstr("at least 1"));
  EXPECT_THAT(fault({.block = 32}, no_dynamic_shared), HasSubstr("shared_bytes = 0"));
}

#if defined(__SANITIZE_ADDRESS__)
void past_the_end_of_static(int by) {
  ASHLAR_SHARED(float, values, [33]);
  float* const first = values;  // else the other sanitizer, which knows the array's type, may be faster
  first[static_cast<int>(threadIdx.x) + by] = 0;
}
void past_the_end_of_dynamic() {
  ASHLAR_DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = 0;
}
TEST_F(Faults, AddressSanitizerKnowsSharedMemory) {
  run({}, {}, past_the_end_of_static, 1);
  run({}, {.shared_bytes = 32 * 4}, past_the_end_of_dynamic);
  EXPECT_DEATH(run({}, {}, past_the_end_of_static, 2), "use-after-poison.*");
  EXPECT_DEATH(run({}, {.shared_bytes = 31 * 4}, past_the_end_of_dynamic), "use-after-poison.*");
}
#endif

void throws_itself() {
  if (threadIdx.x == 3) throw std::runtime_error("of the kernel");
  __syncthreads();
}
TEST_F(Faults, TheMachineGoesOnAfterFaults) {
  EXPECT_THROW(run({}, {.block = 64}, throws_itself), std::runtime_error);
  EXPECT_FALSE(fault({.block = 64}, divergent_barrier).empty());
  EXPECT_TRUE((sums_are_right<true, true>(machine_, {})));
}

}  // namespace
}  // namespace ashlar::emulated
