// Places that a kernel may not touch: each is refused before it is touched, with the line.
#include "tests/gpu_emulator_test/watched/kernels.h"
#include "tests/gpu_emulator_test/watched/watched_test.h"

namespace ashlar::instrumented {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Memory : public testing::Watched {};

TEST_F(Memory, OneElementPastTheEndOfGlobalMemory) {
  for (const int n : {64, 65, 100}) {
    auto* values = device<float>(n);
    auto* out = device<float>(64);
    run({}, {.block = 64}, read_at<float>, values, n - 64, out);
    EXPECT_THAT(fault({.block = 64}, read_at<float>, values, n - 63, out),
                AllOf(HasSubstr("reads 4 bytes of memory that is not the device's: as the device said"),
                      HasSubstr("kernels.cpp:"), HasSubstr("thread (63,0,0)")));
    EXPECT_THAT(fault({.block = 64}, write_at<float>, values, n - 63), HasSubstr("writes 4 bytes of memory"));
  }
  auto* halves = device<uint16_t>(67);
  EXPECT_THAT(fault({.block = 64}, read_at<uint16_t>, halves, 4, device<uint16_t>(64)), HasSubstr("reads 2 bytes"));
}

TEST_F(Memory, BeforeTheBeginOfGlobalMemory) {
  auto* values = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, write_at<float>, values, -1), HasSubstr("not the device's"));
}

TEST_F(Memory, ReleasedMemory) {
  auto* values = device<float>(64);
  run({}, {.block = 64}, write_at<float>, values, 0);
  release_all();
  EXPECT_THAT(fault({.block = 64}, write_at<float>, values, 0), HasSubstr("not the device's"));
}

TEST_F(Memory, MemoryOfTheHost) {
  std::vector<float> host(64);
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, read_at<float>, host.data(), 0, out), HasSubstr("not the device's"));
  EXPECT_THAT(fault({.block = 64}, write_at<float>, host.data(), 0), HasSubstr("not the device's"));
  EXPECT_THAT(fault({.block = 64}, write_at<float>, nullptr, 0), HasSubstr("not the device's"));
}

TEST_F(Memory, OneElementPastTheEndOfSharedMemory) {
  EXPECT_NO_THROW(run({}, {.block = 64}, shared_at, 0));
  EXPECT_THAT(fault({.block = 64}, shared_at, 1),
              AllOf(HasSubstr("out of bounds"), HasSubstr("0 bytes past the end of a variable of 256 bytes")));
  EXPECT_THAT(fault({.block = 64}, shared_at, -1), HasSubstr("out of bounds"));
  EXPECT_NO_THROW(run({}, {.block = 64, .shared_bytes = 256}, dynamic_at, 0));
  EXPECT_THAT(fault({.block = 64, .shared_bytes = 256}, dynamic_at, 1),
              AllOf(HasSubstr("out of bounds"), HasSubstr("past the end of the dynamic memory of 256 bytes")));
  EXPECT_THAT(fault({.block = 64, .shared_bytes = 255}, dynamic_at, 0),
              AllOf(HasSubstr("out of bounds"), HasSubstr("from byte 252 of the dynamic memory of 255 bytes")));
}

TEST_F(Memory, ConstantsMayBeReadOnly) {
  auto* out = device<float>(64);
  run({}, {.block = 64}, read_constants, out);
  EXPECT_EQ(out[5], 2);
  EXPECT_THAT(fault({}, write_constant), HasSubstr("not the device's"));
}

TEST_F(Memory, StacksOfOthers) {
  auto* out = device<float>(64);
  EXPECT_THAT(fault({.block = 64}, read_stack_of_others, out), HasSubstr("not the device's"));
}

TEST_F(Memory, OwnStack) {
  auto* in = device<float>(64);
  std::fill_n(in, 64, 2.0F);
  auto* out = device<float>(64);
  run({}, {.block = 64}, local_array, in, out);
  EXPECT_EQ(out[9], 16);
}

TEST_F(Memory, MisalignedVectors) {
  auto* from = device<float>(4 * 64 + 4);
  auto* out = device<float>(64);
  EXPECT_NO_THROW(run({}, {.block = 64}, misaligned_vector, from, 0, out));
  for (const int offset : {1, 2, 3}) {
    EXPECT_THAT(fault({.block = 64}, misaligned_vector, from, offset, out), HasSubstr("misaligned: reads 16 bytes"));
  }
  EXPECT_NO_THROW(run({}, {.block = 64}, misaligned_shared_vector, 2, out));
  EXPECT_THAT(fault({.block = 64}, misaligned_shared_vector, 1, out), HasSubstr("misaligned: writes 8 bytes"));
}

}  // namespace
}  // namespace ashlar::instrumented
