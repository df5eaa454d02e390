// The comparison of cuDNN's attention with our own kernels, and that a plan gets what it needs: plans that compute in
// fp64 on the host from the case and the pointers alone agree, and each planted error is named.
#include "kernels/cuda/attention/cudnn_self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/make_backend.h"
#include "tests/cudnn/host_planner.h"

namespace ashlar::cudnn::self_test_test {
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
  std::string run(Planted planted, bool backward, const AttentionCase& c) {
    HostPlanner planner(planted);
    const std::unique_ptr<AttentionPlan> plan = planner.make(c);
    EXPECT_EQ(plan->workspace_bytes() > 1000, backward);
    const std::string found = self_test(*backend_, *plan, c, *stream_);
    runs_ = planner.runs;
    return found;
  }
  std::string run(Planted planted, bool backward) { return run(planted, backward, packed(backward)); }

  std::unique_ptr<Backend> backend_ = kernels::make_backend({.threads = 1});
  std::unique_ptr<Stream> stream_ = backend_->make_stream();
  int runs_ = 0;
};

TEST_F(CudnnSelfTest, PlansThatComputeTheContractAgree) {
  const int64_t used = backend_->allocator(MemoryKind::kWorkspace).used_bytes();
  for (const bool backward : {false, true}) {
    EXPECT_EQ(run(Planted::kNothing, backward), "");
    EXPECT_EQ(runs_, 2) << "twice";
  }
  EXPECT_EQ(backend_->allocator(MemoryKind::kWorkspace).used_bytes(), used) << "memory is given back";
}

// As a parallel block has them: q, k and v are a part of wider rows.
TEST_F(CudnnSelfTest, RowsMayHaveAnyWidth) {
  for (const bool backward : {false, true}) {
    AttentionCase c = packed(backward);
    for (Rows* rows : {&c.q, &c.k, &c.v}) *rows = {.batch = c.T * 512, .row = 512};
    if (backward) c.dq = c.dk = c.dv = c.q;
    EXPECT_EQ(run(Planted::kNothing, backward, c), "");
    EXPECT_NE(run(Planted::kScale, backward, c), "");
    c.k.row = 256;
    EXPECT_THAT(run(Planted::kNothing, backward, c), HasSubstr("samples that do not follow each other"));
    EXPECT_EQ(runs_, 0);
  }
  AttentionCase c = packed(true);
  c.dq = {.batch = c.T * 512, .row = 512};
  EXPECT_THAT(run(Planted::kNothing, true, c), HasSubstr("gradients in rows of another width"));
}

TEST_F(CudnnSelfTest, EachErrorIsNoticed) {
  EXPECT_THAT(run(Planted::kNoMask, false), HasSubstr("an output that is off"));
  EXPECT_THAT(run(Planted::kScale, false), HasSubstr("an output that is off"));
  EXPECT_THAT(run(Planted::kWrongHead, false), HasSubstr("an output that is off"));
  EXPECT_THAT(run(Planted::kOneElement, false), HasSubstr(" in one element, more than "));
  EXPECT_THAT(run(Planted::kLse, false), HasSubstr("an lse that is off"));
  EXPECT_THAT(run(Planted::kOtherBits, false), HasSubstr("an output with different bits in the second run"));
  EXPECT_THAT(run(Planted::kNoMask, true), HasSubstr("a dq that is off"));
  EXPECT_THAT(run(Planted::kWrongHead, true), HasSubstr("a dq that is off"));
  EXPECT_THAT(run(Planted::kSwapped, true), HasSubstr("a dk that is off"));
  EXPECT_THAT(run(Planted::kNotFinite, true), HasSubstr("a dq with a value that is not finite"));
  EXPECT_THAT(run(Planted::kDenseRows, true), HasSubstr("a dq"));
}

TEST_F(CudnnSelfTest, TellsTheMemoryThatItTakes) {
  const Allocator& memory = backend_->allocator(MemoryKind::kWorkspace);
  for (const bool backward : {false, true}) {
    const AttentionCase c = packed(backward);
    HostPlanner planner;
    struct Watching final : AttentionPlan {
      Watching(AttentionPlan& p, const Allocator& m) : plan(p), memory(m) {}
      int64_t workspace_bytes() const override { return plan.workspace_bytes(); }
      void run(const AttentionArrays& arrays, void* workspace, Stream& stream) override {
        most = std::max(most, memory.used_bytes());
        plan.run(arrays, workspace, stream);
      }
      AttentionPlan& plan;
      const Allocator& memory;
      int64_t most = 0;
    };
    const std::unique_ptr<AttentionPlan> plan = planner.make(c);
    Watching watching(*plan, memory);
    const int64_t before = memory.used_bytes();
    ASSERT_EQ(self_test(*backend_, watching, c, *stream_), "");
    const int64_t told = self_test_bytes(c) + plan->workspace_bytes();
    EXPECT_GE(watching.most - before, told);
    EXPECT_LE(watching.most - before, told + 20 * 256) << "but for the rounding of a dozen blocks";
  }
}

}  // namespace
}  // namespace ashlar::cudnn::self_test_test
