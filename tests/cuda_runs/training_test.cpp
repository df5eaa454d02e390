// A whole training with run.device = "cuda", the program as a user starts it: against the emulated device and the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda_runs/stand_in_run.h"

namespace ashlar::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// Losses lie within some steps of what the kernels' bounds in fp32 allow (tests/layouts: 2e-5 of a gradient), which
/// AdamW's first steps, of the size of the learning rate whatever the gradient's, do not enlarge beyond.
constexpr double kBound = 2e-5;

TEST(CudaTraining, HasTheLossesOfTheEmulatedDeviceAndOfTheCpu) {
  const StandInRun runs;
  const ShellResult cuda = runs.train("run.dir=cuda");
  ASSERT_EQ(cuda.code, 0) << cuda.out << cuda.err;
  EXPECT_THAT(cuda.out, HasSubstr("cuda: device 0 (Ashlar Stand-In 0, GPU-6173686c-"));
  EXPECT_THAT(cuda.out, HasSubstr("algorithms chosen in "));
  for (const char* device : {"emulated", "cpu"}) {
    const ShellResult other = runs.train(std::string("run.device=") + device + " run.dir=" + device);
    ASSERT_EQ(other.code, 0) << other.out << other.err;
    runs.run().expect_same_metrics("cuda", device, kBound);
  }
}

TEST(CudaTraining, TellsClockPowerAndThrottlingBesideTheRates) {
  const StandInRun runs;
  const ShellResult r =
      runs.train("train.steps=1 checkpoint.every=0 run.dir=r", "", "ASHLAR_STAND_IN_NVML='1410 650400 4'");
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out, ContainsRegex("step 1/1 .* tok/s .* gpu [0-9.]+ MB  1410 MHz  650 W  held by power cap"));
  EXPECT_EQ(runs.run().metric("r", "gpu_mhz"), std::vector<double>{1410});
  EXPECT_EQ(runs.run().metric("r", "gpu_watts"), std::vector<double>{650.4});
  EXPECT_THAT(runs.run().read("r/metrics.jsonl"), HasSubstr("\"gpu_held_by\":\"power cap\""));
  EXPECT_THAT(r.out, HasSubstr("memory of the device: "));

  const ShellResult untold =
      runs.train("train.steps=1 checkpoint.every=0 run.dir=u", "", "ASHLAR_STAND_IN_NVML=broken");
  ASSERT_EQ(untold.code, 0) << untold.out << untold.err;
  EXPECT_THAT(untold.out, HasSubstr("no clock, power and throttling beside the rates: "));
  EXPECT_THAT(untold.out, Not(HasSubstr(" MHz")));
}

}  // namespace
}  // namespace ashlar::testing
