// One binary: what NVIDIA ships is not needed to start it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ashlar::testing
