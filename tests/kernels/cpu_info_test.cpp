#include "kernels/cpu/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace ashlar::cpu {
namespace {

TEST(CpuInfo, CountsTheCoresOfTheAffinityMask) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(detect_cpu().cores, 1);
  EXPECT_LE(detect_cpu().cores, CPU_COUNT(&before)) << "fewer where a control group allows fewer";
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const int cores = detect_cpu().cores;
  sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(cores, 1);
}

}  // namespace
}  // namespace ashlar::cpu
