// Benchmarks of a GPU, on the stand-ins: they run and say what they measured, whatever the figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cuda_runs/stand_in_run.h"

namespace ashlar::testing {
namespace {

using ::testing::StartsWith;

TEST(CudaBenchmarks, OfKernelsAreAgainstTheDevicesOwnCopy) {
  const StandInRun runs;
  const ShellResult r =
      runs.on_emulator("bench kernels --device cuda --only residual --shapes char --seconds 0.001 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_THAT(json.at("device").get<std::string>(), StartsWith("emulated device"));
  EXPECT_GT(json.at("copy_bytes_per_sec").get<double>(), 0);
  EXPECT_EQ(json.at("kernels").size(), 4u);
}

TEST(CudaBenchmarks, OfAStepAllocateNothingInIt) {
  const StandInRun runs;
  const ShellResult r = runs.ashlar("bench step gpu.toml --steps 2 --warmup 1 --json");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(nlohmann::json::parse(r.out).at("allocator_calls").get<int64_t>(), 0) << r.out;
}

}  // namespace
}  // namespace ashlar::testing
