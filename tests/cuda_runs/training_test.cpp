// A whole training with run.device = "cuda", the program as a user starts it: against the emulated device and the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/strings.h"
#include "tests/cuda_runs/stand_in_run.h"

namespace ashlar::testing {
namespace {

using ::testing::AllOf;
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
  EXPECT_THAT(cuda.out, HasSubstr("cuda: device 0 (Ashlar Stand-In, GPU-6173686c-"));
  EXPECT_THAT(cuda.out, HasSubstr("algorithms chosen in "));
  const ShellResult cpu = runs.train("run.device=cpu run.dir=cpu");
  ASSERT_EQ(cpu.code, 0) << cpu.out << cpu.err;
  runs.run().expect_same_metrics("cuda", "cpu", kBound);
  const ShellResult emulated = runs.on_emulator("train gpu.toml run.dir=emulated");
  ASSERT_EQ(emulated.code, 0) << emulated.out << emulated.err;
  EXPECT_THAT(emulated.out, HasSubstr("emulated device 0"));
  runs.run().expect_same_metrics("cuda", "emulated", kBound);
}

TEST(CudaTraining, GoesOnFromCheckpointsOfOtherDevices) {
  const StandInRun runs;
  const auto part = [&](const char* device, int steps, const char* dir) {
    const std::string words = str_cat("train.steps=", steps, " run.dir=", dir, " schedule.decay_steps=5");
    const bool emulated = device == std::string("emulated");
    const ShellResult r =
        emulated ? runs.on_emulator("train gpu.toml " + words) : runs.train(str_cat("run.device=", device, " ", words));
    EXPECT_EQ(r.code, 0) << r.out << r.err;
    EXPECT_THAT(r.out + r.err, Not(HasSubstr("did not lock"))) << "memory for checkpoints";
    return r.out;
  };
  EXPECT_THAT(part("cuda", 2, "run"), HasSubstr("algorithms chosen in "));
  part("emulated", 4, "run");
  part("cpu", 6, "run");
  std::filesystem::remove(runs.run().dir() / "run/choices.json");
  const std::string last = part("cuda", 8, "run");
  EXPECT_THAT(last, HasSubstr("algorithm choices from the checkpoint"));
  EXPECT_THAT(last, Not(HasSubstr("algorithms chosen in "))) << "the same algorithms as in the first part";
  part("cpu", 8, "whole");
  for (const char* key : {"loss", "grad_norm"}) {
    const std::vector<double> got = runs.run().metric("run", key), expected = runs.run().metric("whole", key);
    ASSERT_EQ(got.size(), 8u);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], kBound * expected[i]) << key << " " << i;
  }
}

/// Over NCCL's stand-in, each rank with a device of its own: what one rank computes.
TEST(CudaTraining, OnTwoRanksHasTheLossesOfOne) {
  if (!StandInRun::has_nccl()) GTEST_SKIP() << "no nccl.h to build the stand-in for NCCL against";
  const StandInRun runs;
  ASSERT_EQ(runs.train("run.dir=one").code, 0);
  for (const char* axis : {"data", "tensor"}) {
    SCOPED_TRACE(axis);
    const std::string dir = str_cat("two-", axis), mesh = str_cat("mesh.", axis, "=2");
    const ShellResult r =
        runs.train_on_ranks(2, str_cat(mesh, " run.dir=", dir, " vocab.pad_to=2"), "devices=2 eager=1");
    ASSERT_EQ(r.code, 0) << r.out << r.err;
    EXPECT_THAT(r.out, AllOf(HasSubstr("ranks exchange over NCCL 2."), HasSubstr("with one algorithm and protocol"),
                             HasSubstr("algorithms chosen in ")));
    runs.run().expect_same_metrics(dir, "one", kBound);
  }
}

/// On a machine without the library, which nobody has named: the same numbers, slowly, and one line that says why.
TEST(CudaTraining, OnTwoRanksWithoutNcclGoesThroughHostMemory) {
  const StandInRun runs;
  ASSERT_EQ(runs.train("run.dir=one").code, 0);
  const ShellResult r = runs.train_on_ranks(2, "mesh.data=2 run.dir=two", "devices=2",
                                            "ASHLAR_NCCL= " + preloading(ASHLAR_NO_NVIDIA_LIBRARY));
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out + r.err,
              AllOf(HasSubstr("expected the library NCCL, found none"), HasSubstr("install NVIDIA's NCCL 2"),
                    HasSubstr("Ranks exchange through host memory, which is much slower")));
  EXPECT_THAT(r.out, Not(HasSubstr("ranks exchange over NCCL")));
  runs.run().expect_same_metrics("two", "one", kBound);
}

TEST(CudaTraining, TellsClockPowerAndThrottlingBesideTheRates) {
  const StandInRun runs;
  const ShellResult r = runs.train("train.steps=1 checkpoint.every=0 log.line=full run.dir=r", "",
                                   "ASHLAR_STAND_IN_NVML='1410 650400 4'");
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  EXPECT_THAT(r.out, ContainsRegex("step 1/1 .* tok/s .* gpu [0-9.]+ MB  1410 MHz  650 W  limited by power cap"));
  EXPECT_EQ(runs.run().metric("r", "gpu_mhz"), std::vector<double>{1410});
  EXPECT_EQ(runs.run().metric("r", "gpu_watts"), std::vector<double>{650.4});
  EXPECT_THAT(runs.run().read("r/metrics.jsonl"), HasSubstr("\"gpu_held_by\":\"power cap\""));
  EXPECT_THAT(r.out, HasSubstr("memory of the device: "));

  const ShellResult untold =
      runs.train("train.steps=1 checkpoint.every=0 run.dir=u", "", "ASHLAR_STAND_IN_NVML=broken");
  ASSERT_EQ(untold.code, 0) << untold.out << untold.err;
  EXPECT_THAT(untold.out, HasSubstr("clock, power and throttling are not reported: "));
  EXPECT_THAT(untold.out, Not(HasSubstr(" MHz")));
}

}  // namespace
}  // namespace ashlar::testing
