#include "kernels/make_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_info.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::test {
namespace {

HostMatrix norm_on(Backend& backend, const HostMatrix& x) {
  const std::unique_ptr<Stream> stream = backend.make_stream();
  HostMatrix y(x.dtype(), x.rows(), x.cols()), mean(x.dtype(), 1, x.rows()), rstd(x.dtype(), 1, x.rows());
  backend.norm_forward({.x = x.view(),
                        .gamma = {},
                        .beta = {},
                        .y = y.mut(),
                        .mean = mean.mut(),
                        .rstd = rstd.mut(),
                        .variant = {.type = NormType::kLayerNorm}},
                       *stream);
  stream->synchronize();
  return y;
}

// Without fused multiply-add sums differ in their last bits: each backend must go on with its own instruction set
// whatever others were made or used in between.
TEST(MakeBackend, InstructionSetsOfOneProcessDoNotDisturbEachOther) {
  const HostMatrix x = random_matrix(DType::kFloat32, 33, 257, 1, 0, 0.3);
  const auto best = kernels::make_backend({.threads = 1});
  const HostMatrix of_best = norm_on(*best, x);
  const auto baseline = kernels::make_backend({.threads = 1, .max_isa = "baseline"});
  EXPECT_THAT(baseline->description(), ::testing::HasSubstr("baseline"));
  const HostMatrix of_baseline = norm_on(*baseline, x);
  EXPECT_TRUE(norm_on(*best, x) == of_best);
  EXPECT_TRUE(norm_on(*baseline, x) == of_baseline);
  if (best->description().find(", baseline") != std::string::npos) GTEST_SKIP() << "this machine has one only";
  EXPECT_FALSE(of_best == of_baseline);
}

TEST(MakeBackend, CountsTheCoresThatItWouldUse) {
  EXPECT_GE(kernels::usable_cores(), 1);
  EXPECT_EQ(kernels::usable_cores(), cpu::detect_cpu().cores);
}

TEST(MakeBackend, TellsItsPeakAndRefusesWhatItDoesNotHave) {
  const auto backend = kernels::make_backend({.threads = 1});
  EXPECT_GT(backend->measure_peak(DType::kFloat32, 1e-3), 1e8);
  const auto message = [](const kernels::BackendConfig& config) -> std::string {
    try {
      kernels::make_backend(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kInput);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.device = "tpu"}), ::testing::HasSubstr("expected \"cpu\" or \"cuda\", got \"tpu\""));
  EXPECT_THAT(message({.threads = -1}), ::testing::HasSubstr("got -1"));
  EXPECT_THAT(message({.max_isa = "avx1024"}), ::testing::HasSubstr("avx1024"));
}

}  // namespace
}  // namespace ashlar::test
