// One binary: what NVIDIA ships is not needed to start it, nor to train on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/launch/run_fixture.h"
#include "tests/support/shell.h"

namespace ashlar::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaProgram, NeedsNoLibraryOfNvidias) {
  for (const char* command : {"readelf -d ", "ldd "}) {
    const ShellResult needed = run_shell(command + shell_quote(ASHLAR_BINARY));
    ASSERT_EQ(needed.code, 0) << needed.err;
    EXPECT_THAT(needed.out, HasSubstr("libc.so.6"));  // it was read
    for (const char* library : {"libcuda", "libcublas", "libnccl", "libcudnn", "libnvidia", "libnvrtc", "stand_in"})
      EXPECT_THAT(needed.out, Not(HasSubstr(library)));
  }
}

TEST(CudaProgram, TrainsWhereThereIsNoLibraryOfNvidias) {
  const RunFixture run;
  const std::string nothing = preloading(ASHLAR_NO_NVIDIA_LIBRARY);
  const ShellResult cpu = run.ashlar("train tiny.toml train.steps=2 schedule.warmup_steps=1", nothing);
  EXPECT_EQ(cpu.code, 0) << cpu.out << cpu.err;
  EXPECT_EQ(run.metric("run", "loss").size(), 2u);
  const ShellResult cuda = run.ashlar("train tiny.toml run.device=cuda run.dir=gpu", nothing);
  EXPECT_EQ(cuda.code, 2) << cuda.out << cuda.err;
  EXPECT_EQ(std::count(cuda.err.begin(), cuda.err.end(), '\n'), 1) << cuda.err;
}

}  // namespace
}  // namespace ashlar::testing
