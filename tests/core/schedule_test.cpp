#include "core/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ashlar::optim {
namespace {

Schedule make(ScheduleKind kind, int64_t decay) {
  return {.kind = kind, .peak = 2.0, .steps = 100, .warmup_steps = 10, .decay_steps = decay, .min_ratio = 0.1};
}

TEST(Schedules, WarmUpIsLinearToThePeak) {
  for (const auto kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd,
                          ScheduleKind::kInvSqrt}) {
    const Schedule s = make(kind, 20);
    EXPECT_DOUBLE_EQ(s.lr(0), 0.2);
    EXPECT_DOUBLE_EQ(s.lr(4), 1.0);
    EXPECT_DOUBLE_EQ(s.lr(9), 2.0);
  }
}

TEST(Schedules, EndsAreWhatTheySay) {
  EXPECT_DOUBLE_EQ(make(ScheduleKind::kConstant, 0).lr(99), 2.0);
  const Schedule linear = make(ScheduleKind::kLinear, 90);
  EXPECT_DOUBLE_EQ(linear.lr(10), 2.0);
  EXPECT_DOUBLE_EQ(linear.lr(55), 1.1);
  EXPECT_NEAR(linear.lr(100), 0.2, 1e-15);
  EXPECT_NEAR(linear.lr(1000), 0.2, 1e-15);
  const Schedule cosine = make(ScheduleKind::kCosine, 90);
  EXPECT_DOUBLE_EQ(cosine.lr(55), 1.1);
  EXPECT_NEAR(cosine.lr(100), 0.2, 1e-15);
  // A quarter of the way the cosine is above the line, three quarters of it below.
  EXPECT_DOUBLE_EQ(make(ScheduleKind::kCosine, 80).lr(30), 2.0 * (0.1 + 0.9 * (0.5 + std::sqrt(0.125))));
  EXPECT_DOUBLE_EQ(make(ScheduleKind::kCosine, 80).lr(70), 2.0 * (0.1 + 0.9 * (0.5 - std::sqrt(0.125))));
  const Schedule wsd = make(ScheduleKind::kWsd, 20);
  EXPECT_DOUBLE_EQ(wsd.lr(79), 2.0);
  EXPECT_DOUBLE_EQ(wsd.lr(80), 2.0);
  EXPECT_DOUBLE_EQ(wsd.lr(90), 1.1);
  EXPECT_NEAR(wsd.lr(100), 0.2, 1e-15);
  const Schedule inverse = make(ScheduleKind::kInvSqrt, 0);
  EXPECT_DOUBLE_EQ(inverse.lr(39), 2.0 * std::sqrt(10.0 / 40));
  EXPECT_DOUBLE_EQ(inverse.lr(100000), 0.2);
}

TEST(Schedules, NoDecayStepsAreADropAtOnce) {
  EXPECT_DOUBLE_EQ(make(ScheduleKind::kLinear, 0).lr(9), 2.0);
  for (const auto kind : {ScheduleKind::kLinear, ScheduleKind::kCosine})
    EXPECT_NEAR(make(kind, 0).lr(10), 0.2, 1e-15) << name_of(kind);
  EXPECT_DOUBLE_EQ(make(ScheduleKind::kWsd, 0).lr(99), 2.0);
  EXPECT_NEAR(make(ScheduleKind::kWsd, 0).lr(100), 0.2, 1e-15);
}

TEST(Schedules, NoWarmUp) {
  Schedule s = make(ScheduleKind::kCosine, 100);
  s.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(s.lr(0), 2.0);
}

}  // namespace
}  // namespace ashlar::optim
