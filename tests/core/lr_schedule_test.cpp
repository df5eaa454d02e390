#include "core/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ashlar::optim {
namespace {

LrSchedule make(LrScheduleKind kind, int64_t decay) {
  return {.kind = kind, .peak = 2.0, .steps = 100, .warmup_steps = 10, .decay_steps = decay, .min_ratio = 0.1};
}

TEST(Schedules, WarmUpIsLinearToThePeak) {
  for (const auto kind : {LrScheduleKind::kConstant, LrScheduleKind::kLinear, LrScheduleKind::kCosine,
                          LrScheduleKind::kWsd, LrScheduleKind::kInvSqrt}) {
    const LrSchedule s = make(kind, 20);
    EXPECT_DOUBLE_EQ(s.lr(0), 0.2);
    EXPECT_DOUBLE_EQ(s.lr(4), 1.0);
    EXPECT_DOUBLE_EQ(s.lr(9), 2.0);
  }
}

TEST(Schedules, EndsAreWhatTheySay) {
  EXPECT_DOUBLE_EQ(make(LrScheduleKind::kConstant, 0).lr(99), 2.0);
  const LrSchedule linear = make(LrScheduleKind::kLinear, 90);
  EXPECT_DOUBLE_EQ(linear.lr(10), 2.0);
  EXPECT_DOUBLE_EQ(linear.lr(55), 1.1);
  EXPECT_NEAR(linear.lr(100), 0.2, 1e-15);
  EXPECT_NEAR(linear.lr(1000), 0.2, 1e-15);
  const LrSchedule cosine = make(LrScheduleKind::kCosine, 90);
  EXPECT_DOUBLE_EQ(cosine.lr(55), 1.1);
  EXPECT_NEAR(cosine.lr(100), 0.2, 1e-15);
  // A quarter of the way the cosine is above the line, three quarters of it below.
  EXPECT_DOUBLE_EQ(make(LrScheduleKind::kCosine, 80).lr(30), 2.0 * (0.1 + 0.9 * (0.5 + std::sqrt(0.125))));
  EXPECT_DOUBLE_EQ(make(LrScheduleKind::kCosine, 80).lr(70), 2.0 * (0.1 + 0.9 * (0.5 - std::sqrt(0.125))));
  const LrSchedule wsd = make(LrScheduleKind::kWsd, 20);
  EXPECT_DOUBLE_EQ(wsd.lr(79), 2.0);
  EXPECT_DOUBLE_EQ(wsd.lr(80), 2.0);
  EXPECT_DOUBLE_EQ(wsd.lr(90), 1.1);
  EXPECT_NEAR(wsd.lr(100), 0.2, 1e-15);
  const LrSchedule inverse = make(LrScheduleKind::kInvSqrt, 0);
  EXPECT_DOUBLE_EQ(inverse.lr(39), 2.0 * std::sqrt(10.0 / 40));
  EXPECT_DOUBLE_EQ(inverse.lr(100000), 0.2);
}

TEST(Schedules, NoDecayStepsAreADropAtOnce) {
  EXPECT_DOUBLE_EQ(make(LrScheduleKind::kLinear, 0).lr(9), 2.0);
  for (const auto kind : {LrScheduleKind::kLinear, LrScheduleKind::kCosine})
    EXPECT_NEAR(make(kind, 0).lr(10), 0.2, 1e-15) << name_of(kind);
  EXPECT_DOUBLE_EQ(make(LrScheduleKind::kWsd, 0).lr(99), 2.0);
  EXPECT_NEAR(make(LrScheduleKind::kWsd, 0).lr(100), 0.2, 1e-15);
}

TEST(Schedules, NoWarmUp) {
  LrSchedule s = make(LrScheduleKind::kCosine, 100);
  s.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(s.lr(0), 2.0);
}

}  // namespace
}  // namespace ashlar::optim
