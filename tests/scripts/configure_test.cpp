// launch/scripts/common.sh: when a build folder is configured, and with what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

class Configure : public ::testing::Test {
 protected:
  /// Sources common.sh with a stand-in for cmake, sets the settings and builds; the calls of cmake.
  std::string build(const std::string& settings) {
    const std::string bin = (scratch_.path() / "bin").string();
    std::filesystem::create_directories(bin);
    testing::write_program(bin + "/cmake", "echo \"cmake $*\" >>\"$calls\"");
    const testing::ShellResult result = testing::run_shell(
        "set -euo pipefail\nroot=" + testing::shell_quote(ASHLAR_SOURCE_DIR) +
        "\n. \"$root/launch/scripts/common.sh\"\nexport calls=" + testing::shell_quote(scratch_.file("calls")) +
        "\n: >\"$calls\"\nPATH=" + testing::shell_quote(bin) + ":$PATH\nsettings=(" + settings + ")\nbuild " +
        testing::shell_quote(folder().string()) + " release ashlar >/dev/null\ncat \"$calls\"\n");
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
  void configured(const std::string& cache) {
    std::filesystem::create_directories(folder());
    std::ofstream(folder() / "build.ninja") << "";
    std::ofstream(folder() / "CMakeCache.txt") << cache;
  }
  std::filesystem::path folder() { return scratch_.path() / "build"; }

  testing::ScratchDir scratch_;
};

TEST_F(Configure, AFreshFolderGetsTheSettings) {
  EXPECT_THAT(build("ASHLAR_CUDA=OFF ASHLAR_UNITY=ON"),
              ::testing::ContainsRegex("^cmake --preset release -B .* -DASHLAR_CUDA=OFF -DASHLAR_UNITY=ON\n"
                                       "cmake --build .* --target ashlar\n$"));
}

TEST_F(Configure, AFolderThatHasThemIsNotConfiguredAgain) {
  configured("ASHLAR_CUDA:BOOL=ON\nASHLAR_UNITY:BOOL=OFF\n");
  for (const char* settings : {"", "ASHLAR_CUDA=ON", "ASHLAR_CUDA=ON ASHLAR_UNITY=OFF"})
    EXPECT_THAT(build(settings), ::testing::StartsWith("cmake --build")) << settings;
  EXPECT_THAT(build("ASHLAR_UNITY=ON"), ::testing::StartsWith("cmake --preset"));
}

}  // namespace
}  // namespace ashlar
