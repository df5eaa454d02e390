// cuDNN builds plans of our attention for GPUs that are only described: it takes the shapes and strides, has a
// deterministic kernel for them, and tells the workspace before the first step.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/cudnn_functions.h"
#include "tests/cudnn/devices.h"

namespace ashlar::cudnn::plans_test {
namespace {

using testing::a100;
using testing::DescribedGpu;
using testing::h100;
using ::testing::HasSubstr;

struct Shape {
  int64_t B, T, H, G, D;
};

/// q, k, v packed in rows, gradients likewise: as core/ops/attention.cpp calls.
AttentionCase packed(const Shape& s, bool backward) {
  const int64_t width = (s.H + 2 * s.G) * s.D;
  const Rows qkv{.batch = s.T * width, .row = width}, out{.batch = s.T * s.H * s.D, .row = s.H * s.D};
  AttentionCase c{.B = s.B, .T = s.T, .H = s.H, .G = s.G, .D = s.D, .scale = 0.125};
  c.q = c.k = c.v = qkv;
  c.out = out;
  c.backward = backward;
  if (backward) {
    c.dout = out;
    c.dq = c.dk = c.dv = qkv;
  }
  return c;
}

/// The gradients of scores in bf16, for tiles of 64 rows and 128 columns: what a deterministic backward keeps.
int64_t score_gradient_bytes(const Shape& s) {
  return s.B * s.H * ((s.T + 63) / 64 * 64) * ((s.T + 127) / 128 * 128) * 2;
}

class CudnnPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    // Before cuDNN looks for libcuda.so.1: what is loaded under that name is what it finds.
    ASSERT_NE(dlopen(ASHLAR_STAND_IN_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    try {
      load_library();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    if (library_version() < 91900) GTEST_SKIP() << "cuDNN " << version_text(library_version()) << " is older than 9.19";
  }
  static std::unique_ptr<AttentionPlanner> planner(const DescribedGpu& gpu) { return make_planner(gpu.json, gpu.sm); }
};

TEST_F(CudnnPlans, ForwardAndBackwardOfManyShapesOnBothDevices) {
  const Shape shapes[] = {{64, 1024, 12, 12, 64}, {2, 2048, 14, 2, 64}, {1, 4096, 28, 4, 128},
                          {2, 1000, 25, 25, 64},  {1, 512, 8, 1, 80},   {3, 96, 3, 3, 8}};
  for (const DescribedGpu& gpu : {h100(), a100()}) {
    const auto cudnn = planner(gpu);
    EXPECT_EQ(cudnn->library().sm, gpu.sm);
    for (const Shape& s : shapes) {
      const std::string name = str_cat("sm_", gpu.sm, " B ", s.B, " T ", s.T, " H ", s.H, " G ", s.G, " D ", s.D);
      ASSERT_EQ(refusal({.B = s.B, .T_q = s.T, .T_kv = s.T, .H = s.H, .G = s.G, .D = s.D}, DType::kBFloat16,
                        cudnn->library()),
                "");
      const int64_t forward = cudnn->make(packed(s, false))->workspace_bytes();
      EXPECT_GE(forward, 0) << name;
      EXPECT_LT(forward, 1 << 20) << name;
      // The gradients of scores, and beside them statistics and sums in fp32 of no more than the arrays' own size.
      const int64_t backward = cudnn->make(packed(s, true))->workspace_bytes();
      EXPECT_GE(backward, score_gradient_bytes(s)) << name;
      EXPECT_LT(backward, score_gradient_bytes(s) + 16 * s.B * s.T * s.H * s.D + (1 << 20)) << name;
    }
  }
}

TEST_F(CudnnPlans, HopperHasWideHeads) {
  const Shape wide{1, 256, 4, 4, 256};
  EXPECT_GT(planner(h100())->make(packed(wide, true))->workspace_bytes(), 0);
  EXPECT_THROW(planner(a100())->make(packed(wide, true)), Error);
}

TEST_F(CudnnPlans, WhatCudnnDoesNotTakeIsAnErrorWithTheShapeAndItsWords) {
  try {
    planner(h100())->make(packed({2, 256, 4, 4, 60}, true));
    FAIL() << "head_dim 60 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kInput);
    EXPECT_THAT(error.what(), HasSubstr("batch 2, sequence_length 256, 4 heads, 4 kv heads, head_dim 60 (backward)"));
    EXPECT_THAT(error.what(), HasSubstr("multiple of 8"));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
  }
}

TEST_F(CudnnPlans, ADeviceThatIsNotThereCannotRun) {
  const auto plan = planner(h100())->make(packed({1, 128, 2, 2, 64}, false));
  SynchronousStream stream;
  EXPECT_THROW(plan->run({}, nullptr, stream), Bug);
}

TEST_F(CudnnPlans, ADescriptionThatIsNoneIsRefused) { EXPECT_THROW(make_planner("{\"deviceName\": 5}", 90), Error); }

TEST_F(CudnnPlans, WithoutADeviceThereIsNoHandle) { EXPECT_THROW(make_planner(90), Error); }

}  // namespace
}  // namespace ashlar::cudnn::plans_test
