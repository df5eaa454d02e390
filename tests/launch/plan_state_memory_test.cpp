// What the optimizer's state takes of one H100, traced through the allocators of a device that only counts: a size of
// Qwen2.5 that fits with moments in bf16, and not with moments in fp32.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/config/run_config.h"
#include "launch/plan/memory_plan.h"

namespace ashlar::plan {
namespace {

constexpr double kH100Bytes = 85.5e9;

MemoryPlan planned_state(const std::string& state_dtype) {
  const std::vector<std::string> words = {"run.device=cuda",           "train.sequence_length=1024",
                                          "train.micro_batch=16",      "train.global_batch=16",
                                          "train.recompute=selective", "optimizer.state_dtype=" + state_dtype};
  const config::Resolved r = config::resolve(
      config::read_config(std::string(ASHLAR_SOURCE_DIR) + "/configs/start/qwen2.5-3b.toml", words), {});
  return memory_plan({.run = r.config, .device = DeviceKind::kCuda});
}

double bytes_of_part(const MemoryPlan& plan, const std::string& name) {
  for (const MemoryPart& part : plan.parts)
    if (part.name == name) return static_cast<double>(part.bytes);
  return 0;
}

TEST(PlanStateMemory, Qwen3BAtMicroBatch16FitsWithMomentsInBf16) {
  constexpr double kParameters = 3'085'938'688, kPadding = 1e-3;
  const MemoryPlan wide = planned_state("fp32"), narrow = planned_state("bf16");
  EXPECT_NEAR(bytes_of_part(wide, "master and moments"), 12 * kParameters, 12 * kPadding * kParameters);
  EXPECT_NEAR(bytes_of_part(narrow, "master and moments"), 8 * kParameters, 8 * kPadding * kParameters);
  EXPECT_NEAR(static_cast<double>(wide.bytes - narrow.bytes), 4 * kParameters, 4 * kPadding * kParameters);
  EXPECT_GT(static_cast<double>(wide.bytes), kH100Bytes);
  EXPECT_LT(static_cast<double>(narrow.bytes), kH100Bytes);
}

}  // namespace
}  // namespace ashlar::plan
