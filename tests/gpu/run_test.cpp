// The bundle and its script, here without a GPU: what run.sh says and counts, with stand-ins for the bundle's programs;
// and the real bundle where it can be built.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/scratch_dir.h"
#include "tests/support/shell.h"

namespace ashlar {
namespace {

using ::testing::HasSubstr;
using testing::run_shell;
using testing::shell_quote;
using ::testing::StartsWith;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A bundle whose program answers --device as `device` says, and runs `body` otherwise.
class GpuRun : public ::testing::Test {
 protected:
  void make_bundle(const std::string& device, const std::string& body) {
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy_file(ASHLAR_SOURCE_DIR "/tests/gpu/run.sh", folder_ / "run.sh");
    std::ofstream(folder_ / "commit") << "0123abc\n";
    testing::write_program(folder_ / "bin/gpu_conformance",
                           "if [ \"$1\" = --device ]; then " + device + "; fi\n" + body + "\n");
  }
  testing::ShellResult run(const std::string& arguments = "") {
    return run_shell(shell_quote(folder_ / "run.sh") + " " + arguments);
  }

  const testing::ScratchDir scratch_;
  const std::filesystem::path folder_ = std::filesystem::path(scratch_.path()) / "bundle";
};

TEST_F(GpuRun, WithoutAGpuTheFirstLineSaysSo) {
  make_bundle("echo 'no GPU: the driver sees no device'; exit 3", "exit 0");
  const auto result = run();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, StartsWith("no GPU: the driver sees no device\n"));
}

TEST_F(GpuRun, AProgramThatCannotStartIsNoGpuEither) {
  make_bundle("echo 'lib.so: cannot open' >&2; exit 127", "exit 0");
  const auto result = run();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.out, StartsWith("no GPU: bin/gpu_conformance cannot run here: lib.so: cannot open\n"));
}

TEST_F(GpuRun, WhatPassesIsCountedAndWritten) {
  make_bundle("echo 'Some \"GPU\"'; exit 0", "echo '34 kernels equal, 0 differ'");
  const auto result = run();
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, StartsWith("GPU: Some \"GPU\"\n"));
  const std::string part = text_of(folder_ / "results/conformance.json");
  EXPECT_THAT(part, HasSubstr(R"("status": "passed", "exit": 0)"));
  EXPECT_THAT(part, HasSubstr(R"("says": "34 kernels equal, 0 differ")"));
  const std::string summary = text_of(folder_ / "results/summary.json");
  EXPECT_THAT(summary, StartsWith(R"({"commit": "0123abc", "device": "Some \"GPU\"", "seconds": )"));
  EXPECT_THAT(summary, HasSubstr(R"("failed": 0, "absent": 0)"));
  EXPECT_THAT(result.out, HasSubstr("conformance      passed"));
}

TEST_F(GpuRun, WhatFailsIsTheExitCode) {
  make_bundle("echo G; exit 0", "echo '33 kernels equal, 1 differ'; exit 1");
  const auto result = run();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(text_of(folder_ / "results/summary.json"), HasSubstr(R"("failed": 1)"));
  EXPECT_THAT(text_of(folder_ / "results/conformance.json"), HasSubstr(R"("status": "failed", "exit": 1)"));
}

TEST_F(GpuRun, ResultsOfAnotherRunAreNotWrittenOver) {
  make_bundle("echo G; exit 0", "exit 0");
  EXPECT_EQ(run().code, 0);
  const auto result = run();
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("expected a new or empty folder"));
  EXPECT_EQ(run(shell_quote(folder_ / "again")).code, 0);
}

/// Made of this build's programs: small, complete, and started from another folder.
TEST_F(GpuRun, TheBundleRunsFromAnyFolder) {
#if !defined(ASHLAR_GPU_PROGRAMS)
  GTEST_SKIP() << "no nvcc when this was configured: launch/scripts/cuda_toolkit.sh DIR gets one";
#else
  const std::string file = std::filesystem::path(scratch_.path()) / "bundle.tar.gz";
  const auto packed = run_shell("ASHLAR_BUILD_DIR=" + shell_quote(ASHLAR_BUILD_DIR) +
                                " " ASHLAR_SOURCE_DIR "/tests/gpu/bundle.sh " + shell_quote(file));
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_LT(std::filesystem::file_size(file), uint64_t{64} << 20);
  const auto result =
      run_shell("cd " + shell_quote(scratch_.path()) + " && tar xzf bundle.tar.gz && ashlar-gpu/run.sh");
  if (result.code == 3) {
    EXPECT_THAT(result.out, StartsWith("no GPU: "));
  } else {
    EXPECT_EQ(result.code, 0) << result.out << result.err;
  }
#endif
}

}  // namespace
}  // namespace ashlar
