// The comparison of cuDNN's attention with our own kernels, and that a plan gets what it needs: plans that compute in
// fp64 on the host from the case and the pointers alone agree, and each planted error is named.
#include "kernels/cuda/attention/cudnn_self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/make_backend.h"
#include "tests/cudnn/host_planner.h"

namespace ashlar::cudnn {
namespace {

using ::testing::HasSubstr;
using testing::HostPlanner;
using testing::Planted;

AttentionCase packed(bool backward) {
  constexpr int64_t kB = 2, kT = 40, kH = 4, kG = 2, kD = 16, kWidth = (kH + 2 * kG) * kD;
  AttentionCase c{.B = kB, .T = kT, .H = kH, .G = kG, .D = kD, .scale = 0.3};
  c.q = c.k = c.v = {.batch = kT * kWidth, .row = kWidth};
  c.out = {.batch = kT * kH * kD, .row = kH * kD};
  c.backward = backward;
  if (backward) {
    c.dout = c.out;
    c.dq = c.dk = c.dv = c.q;
  }
  return c;
}

class CudnnSelfTest : public ::testing::Test {
 protected:
  std::string run(Planted planted) {
    HostPlanner planner(planted);
    PreparedAttention prepared(planner, packed(false), packed(true));
    const std::string found = self_test(*backend_, prepared, packed(false), *stream_);
    runs_ = planner.runs;
    return found;
  }

  std::unique_ptr<Backend> backend_ = kernels::make_backend({.threads = 1});
  std::unique_ptr<Stream> stream_ = backend_->make_stream();
  int runs_ = 0;
};

TEST_F(CudnnSelfTest, PlansThatComputeTheContractAgree) {
  const int64_t used = backend_->allocator(MemoryKind::kWorkspace).used_bytes();
  EXPECT_EQ(run(Planted::kNothing), "");
  EXPECT_EQ(runs_, 4) << "forward and backward, twice";
  EXPECT_EQ(backend_->allocator(MemoryKind::kWorkspace).used_bytes(), used) << "memory is given back";
}

TEST_F(CudnnSelfTest, EachErrorIsNoticed) {
  EXPECT_THAT(run(Planted::kNoMask), HasSubstr("an output that is off"));
  EXPECT_THAT(run(Planted::kScale), HasSubstr("an output that is off"));
  EXPECT_THAT(run(Planted::kWrongHead), HasSubstr("an output that is off"));
  EXPECT_THAT(run(Planted::kLse), HasSubstr("an lse that is off"));
  EXPECT_THAT(run(Planted::kSwapped), HasSubstr("a dk that is off"));
  EXPECT_THAT(run(Planted::kNotFinite), HasSubstr("a dq with a value that is not finite"));
  EXPECT_THAT(run(Planted::kDenseRows), HasSubstr("a dq"));
  EXPECT_THAT(run(Planted::kOtherBits), HasSubstr("of other bits at the second run"));
}

TEST_F(CudnnSelfTest, PlansOfAnotherShapeAreNotRun) {
  HostPlanner planner;
  AttentionCase other = packed(false);
  other.q.row += 8;
  PreparedAttention prepared(planner, other, packed(true));
  EXPECT_THAT(self_test(*backend_, prepared, packed(false), *stream_), HasSubstr("another shape"));
  EXPECT_EQ(planner.runs, 0);
}

}  // namespace
}  // namespace ashlar::cudnn
