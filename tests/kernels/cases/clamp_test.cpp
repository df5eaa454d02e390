#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr double kLimit = 0.75;  // exact in every dtype: what lies on it is inside

/// Normal numbers, a good share of them beyond the limit, some on it.
HostMatrix numbers_around_the_limit(DType dtype, Shape s, int64_t padding) {
  HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, padding);
  for (int64_t i = 0; i < s.rows * s.cols; i += 5) x.set(i, i % 2 == 0 ? kLimit : -kLimit);
  return x;
}

class ClampTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

TEST_F(ClampTest, ForwardCutsAtBothLimitsAndRoundsNothing) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "]"));
      HostMatrix x = numbers_around_the_limit(dtype, s, 2);
      x.set(s.rows * s.cols - 1, std::nan(""));
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {HostMatrix(dtype, s.rows, s.cols, 1)};
            backend.clamp({.x = x.view(), .y = out[0].mut(), .limit = kLimit}, backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            for (int64_t i = 0; i < s.rows * s.cols - 1; ++i)
              ASSERT_EQ(out[0].at(i), std::min(std::max(x.at(i), -kLimit), kLimit)) << i << " of x = " << x.at(i);
            EXPECT_TRUE(std::isnan(out[0].at(s.rows * s.cols - 1)));
          });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(ClampTest, BackwardPassesWhatLiesWithinInEveryMode) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      const HostMatrix x = numbers_around_the_limit(dtype, s, 2);
      const HostMatrix dy = random_matrix(dtype, s.rows, s.cols, 2, 1);
      const HostMatrix before = random_matrix(dtype, s.rows, s.cols, 3, 1);
      for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
        SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] mode ", static_cast<int>(mode)));
        const HostMatrix start = mode == GradMode::kAccumulate ? before : HostMatrix(dtype, s.rows, s.cols, 1);
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {start};
              backend.clamp_backward(
                  {.dy = dy.view(), .x = x.view(), .dx = out[0].mut(), .limit = kLimit, .mode = mode},
                  backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              if (mode == GradMode::kSkip) {
                EXPECT_TRUE(out[0] == start);
                return;
              }
              const auto old = [&](int64_t n, int64_t c) {
                return mode == GradMode::kAccumulate ? before.at(n, c) : 0.0;
              };
              const auto passed = [&](int64_t n, int64_t c) {
                return std::abs(x.at(n, c)) <= kLimit ? dy.at(n, c) : 0.0;
              };
              expect_near(
                  out[0], 1, [&](int64_t n, int64_t c) { return old(n, c) + passed(n, c); },
                  [&](int64_t n, int64_t c) { return std::abs(old(n, c)) + std::abs(passed(n, c)); }, "dx");
            });
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace ashlar::test
