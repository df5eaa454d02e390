#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

class LearnedScaleTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

HostMatrix number(DType dtype, double value) {
  HostMatrix m(dtype, 1, 1);
  m.set(0, rounded(dtype, value));
  return m;
}

TEST_F(LearnedScaleTest, IsTheFormula) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      for (const double factor : {1.0, -0.37, 0.0}) {
        SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] ", factor));
        const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, 2), by = number(dtype, factor);
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {HostMatrix(dtype, s.rows, s.cols, 3)};
              backend.learned_scale({.x = x.view(), .s = by.view(), .y = out[0].mut()}, backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              const auto product = [&](int64_t r, int64_t c) { return by.at(0) * x.at(r, c); };
              expect_near(
                  out[0], 1, product, [&](int64_t r, int64_t c) { return std::abs(product(r, c)); }, "y");
            });
      }
    }
  }
}

/// dx and ds in each mode, dx apart from dy and on top of it.
TEST_F(LearnedScaleTest, BackwardIsTheFormulaInEveryMode) {
  for (const DType dtype : kStorageDTypes) {
    const DType acc = accumulate_dtype(dtype);
    for (const Shape s : kShapes) {
      const HostMatrix dy = random_matrix(dtype, s.rows, s.cols, 1, 1), x = random_matrix(dtype, s.rows, s.cols, 2, 2);
      const HostMatrix before = random_matrix(dtype, s.rows, s.cols, 3), by = number(dtype, 0.71);
      double sum = 0, terms = 0;
      for (int64_t i = 0; i < s.rows * s.cols; ++i) {
        sum += dy.at(i) * x.at(i);
        terms += std::abs(dy.at(i) * x.at(i));
      }
      for (const GradMode dx_mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
        for (const GradMode param_mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
          SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] ", static_cast<int>(dx_mode), " ",
                               static_cast<int>(param_mode)));
          const bool on_top = dx_mode == GradMode::kOverwrite && param_mode == GradMode::kAccumulate;
          backends_.each(
              [&](Backend& backend) {
                Outputs out = {on_top ? dy : before, number(acc, 0.25)};
                backend.learned_scale_backward({.dy = on_top ? out[0].view() : dy.view(),
                                                .x = x.view(),
                                                .s = by.view(),
                                                .dx = dx_mode == GradMode::kSkip ? MutView{} : out[0].mut(),
                                                .ds = param_mode == GradMode::kSkip ? MutView{} : out[1].mut(),
                                                .dx_mode = dx_mode,
                                                .param_mode = param_mode},
                                               backends_.stream());
                return out;
              },
              [&](const Outputs& out) {
                const auto old = [&](int64_t r, int64_t c) {
                  return dx_mode == GradMode::kAccumulate ? before.at(r, c) : 0;
                };
                if (dx_mode == GradMode::kSkip) {
                  EXPECT_TRUE(out[0] == before);
                } else {
                  expect_near(
                      out[0], 1, [&](int64_t r, int64_t c) { return old(r, c) + by.at(0) * dy.at(r, c); },
                      [&](int64_t r, int64_t c) { return std::abs(old(r, c)) + std::abs(by.at(0) * dy.at(r, c)); },
                      "dx");
                }
                if (param_mode == GradMode::kSkip) {
                  EXPECT_EQ(out[1].at(0), 0.25);
                  return;
                }
                const double first = param_mode == GradMode::kAccumulate ? 0.25 : 0;
                expect_near(
                    out[1], s.rows * s.cols, [&](int64_t, int64_t) { return first + sum; },
                    [&](int64_t, int64_t) { return first + terms; }, "ds");
              });
        }
      }
    }
  }
}

}  // namespace
}  // namespace ashlar::test
