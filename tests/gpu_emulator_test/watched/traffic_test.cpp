// Counts of sectors, bytes and bank conflicts against what the programming guide says of each pattern.
#include "tests/gpu_emulator/vector_types.h"
#include "tests/gpu_emulator_test/watched/kernels.h"
#include "tests/gpu_emulator_test/watched/watched_test.h"

namespace ashlar::instrumented {
namespace {

using emulator::float2;
using emulator::float4;
using emulator::Traffic;

class TrafficOf : public testing::Watched {
 protected:
  template <typename... Params, typename... Args>
  Traffic count(const testing::Shape& shape, void (*kernel)(Params...), Args... args) {
    machine_.clear_traffic();
    run({.policy = emulator::Policy::kRandom}, shape, kernel, args...);
    return machine_.traffic().at("test");
  }
  template <typename T>
  Traffic count_copy(int64_t stride, int64_t offset) {
    auto* from = device<T>(4 * 64 * stride + offset + 1);
    return count({.grid = 2, .block = 128}, copy_strided<T>, from, device<T>(4 * 64), stride, offset);
  }
};

TEST_F(TrafficOf, NeighboursFillSectors) {
  const Traffic traffic = count_copy<float>(1, 0);
  EXPECT_EQ(traffic.launches, 1);
  EXPECT_EQ(traffic.read_bytes, 256 * 4);
  EXPECT_EQ(traffic.write_bytes, 256 * 4);
  // Blocks of memory are aligned to 16 here: a warp's 128 bytes lie in four sectors, or five.
  EXPECT_GE(traffic.read_sectors, 32);
  EXPECT_LE(traffic.read_sectors, 40);
  EXPECT_EQ(traffic.ideal_read_sectors, 32);
  EXPECT_EQ(traffic.ideal_write_sectors, 32);
}

TEST_F(TrafficOf, VectorsAreOneInstruction) {
  const Traffic traffic = count_copy<float4>(1, 0);
  EXPECT_EQ(traffic.read_bytes, 256 * 16);
  EXPECT_EQ(traffic.ideal_read_sectors, 128);
  EXPECT_LE(traffic.read_sectors, 128 + 8);
}

TEST_F(TrafficOf, StridesWasteSectors) {
  EXPECT_EQ(count_copy<float>(8, 0).read_sectors, 256);
  EXPECT_EQ(count_copy<float>(64, 3).read_sectors, 256);
  EXPECT_EQ(count_copy<float>(64, 3).ideal_read_sectors, 32);
  EXPECT_NEAR(static_cast<double>(count_copy<float>(2, 0).read_sectors), 64, 8);
  EXPECT_NEAR(static_cast<double>(count_copy<uint16_t>(1, 0).read_sectors), 16, 8);
}

TEST_F(TrafficOf, OneWordForAllIsOneSector) {
  const Traffic traffic = count_copy<float>(0, 1);
  EXPECT_EQ(traffic.read_sectors, 8);
  EXPECT_EQ(traffic.ideal_read_sectors, 8);
  EXPECT_EQ(traffic.read_bytes, 256 * 4);
}

TEST_F(TrafficOf, BankConflicts) {
  auto* out = device<float>(32);
  const auto conflicts = [&](auto kernel, int stride) {
    return count({.shared_bytes = 64 * 1024}, kernel, stride, out).bank_conflicts();
  };
  EXPECT_EQ(conflicts(shared_strided<float>, 0), 0);
  EXPECT_EQ(conflicts(shared_strided<float>, 1), 0);
  EXPECT_EQ(conflicts(shared_strided<float>, 2), 1);
  EXPECT_EQ(conflicts(shared_strided<float>, 3), 0);
  EXPECT_EQ(conflicts(shared_strided<float>, 32), 31);
  EXPECT_EQ(conflicts(shared_strided<float>, 33), 0);
  EXPECT_EQ(conflicts(shared_strided<float2>, 1), 0);
  EXPECT_EQ(conflicts(shared_strided<float2>, 2), 2);  // two halves of the warp
  EXPECT_EQ(conflicts(shared_strided<float4>, 1), 0);
  EXPECT_EQ(conflicts(shared_strided<float4>, 8), 4 * 7);
  EXPECT_EQ(conflicts(shared_strided<float4>, 9), 0);
}

TEST_F(TrafficOf, ConflictsOfLdmatrix) {
  auto* out = device<uint32_t>(32);
  const auto passes = [&](int stride) {
    return count({.shared_bytes = 32 * 1024}, matrices_of_stride, stride, out).bank_conflicts();
  };
  EXPECT_EQ(passes(8), 0);
  EXPECT_EQ(passes(64), 4 * 7);
  EXPECT_EQ(passes(72), 0);
  EXPECT_EQ(passes(16), 4 * 1);
}

TEST_F(TrafficOf, CopiesAreCounted) {
  auto* from = device<float>(32 * 16);
  const Traffic side_by_side = count({}, copy_async_strided, from, int64_t{4}, device<float>(32));
  EXPECT_EQ(side_by_side.read_bytes, 32 * 16);
  EXPECT_EQ(side_by_side.ideal_read_sectors, 16);
  EXPECT_LE(side_by_side.read_sectors, 17);
  EXPECT_EQ(side_by_side.bank_conflicts(), 3);  // every fourth word is read back
  const Traffic apart = count({}, copy_async_strided, from, int64_t{16}, device<float>(32));
  EXPECT_EQ(apart.read_sectors, 32);
}

TEST_F(TrafficOf, LanesWithNothingToCopyOnlyWrite) {
  auto* from = device<float>(32 * 4);
  const Traffic traffic = count({}, copy_async_part, from, uint32_t{0x0f0f3355}, device<float>(32));
  EXPECT_EQ(traffic.read_bytes, (16 + 32) * 16);
  EXPECT_EQ(traffic.bank_conflicts(), 0);
  EXPECT_EQ(traffic.shared_passes, 8);
}

TEST_F(TrafficOf, AtomicsAreCounted) {
  auto* in = device<int>(64);
  std::fill_n(in, 64, 3);
  EXPECT_EQ(count({.block = 64}, histogram<true>, in, device<unsigned>(8), device<unsigned>(64)).atomics, 64);
}

}  // namespace
}  // namespace ashlar::instrumented
