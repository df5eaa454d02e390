#include <gtest/gtest.h>

#include <limits>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr double kBeta = 0.5, kEps = -1e-6;

double softplus(double a) { return a > 0 ? a + std::log1p(std::exp(-a)) : std::log1p(std::exp(a)); }

/// The formula, in double, of scalars as they are stored.
struct XieluReference {
  double p, n, p_slope, n_slope;

  explicit XieluReference(const HostMatrix& alpha)
      : p(softplus(alpha.at(0))),
        n(kBeta + softplus(alpha.at(1))),
        p_slope(1 / (1 + std::exp(-alpha.at(0)))),
        n_slope(1 / (1 + std::exp(-alpha.at(1)))) {}

  static double below(double x) { return std::expm1(std::min(x, kEps)) - x; }
  double value(double x) const { return (x > 0 ? p * x * x : n * below(x)) + kBeta * x; }
  double slope(double x) const { return (x > 0 ? 2 * p * x : n * (x < kEps ? std::expm1(x) : -1)) + kBeta; }
  /// The largest terms, for bounds.
  double size(double x) const { return (x > 0 ? p * x * x : n * (1 + std::abs(x))) + kBeta * std::abs(x); }
  double slope_size(double x) const { return (x > 0 ? 2 * p * x : n) + kBeta; }
};

constexpr std::array<Shape, 7> kXieluShapes = {Shape{1, 1}, {3, 3}, {1, 31}, {5, 33}, {31, 64}, {33, 257}, {19, 768}};

class XieluTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  static HostMatrix scalars(DType dtype, double alpha_p, double alpha_n) {
    HostMatrix alpha(dtype, 1, 2);
    alpha.set(0, alpha_p);
    alpha.set(1, alpha_n);
    return alpha;
  }
  /// Scalars around their start, of one sign each and far from it.
  template <typename F>
  void for_each_case(const F& f) {
    for (const DType dtype : kStorageDTypes) {
      for (const Shape shape : kXieluShapes) {
        for (const auto& [alpha_p, alpha_n] : {std::pair(0.2, -1.05), std::pair(-6.5, 9.0)}) {
          for (const int64_t padding : {0, 3}) {
            if (padding > 0 && alpha_p < 0) continue;
            SCOPED_TRACE(str_cat(name_of(dtype), " [", shape.rows, ", ", shape.cols, "] alpha_p ", alpha_p, " alpha_n ",
                                 alpha_n, " padding ", padding));
            f(dtype, shape, scalars(dtype, alpha_p, alpha_n), padding);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
};

TEST_F(XieluTest, ForwardIsTheFormula) {
  for_each_case([&](DType dtype, Shape s, const HostMatrix& alpha, int64_t padding) {
    const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, padding, 0, 3);
    const XieluReference reference(alpha);
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {HostMatrix(dtype, s.rows, s.cols, padding)};
          backend.activation_forward(
              {.x = x.view(), .up = {}, .scalars = alpha.view(), .y = out[0].mut(), .kind = Activation::kXielu},
              backends_.stream());
          return out;
        },
        [&](const Outputs& out) {
          expect_near(
              out[0], 1, [&](int64_t r, int64_t c) { return reference.value(x.at(r, c)); },
              [&](int64_t r, int64_t c) { return reference.size(x.at(r, c)); }, "y");
        });
  });
}

TEST_F(XieluTest, BackwardIsTheFormulaInEveryMode) {
  for_each_case([&](DType dtype, Shape s, const HostMatrix& alpha, int64_t padding) {
    const DType wide = accumulate_dtype(dtype);
    const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, padding, 0, 2);
    const HostMatrix dy = random_matrix(dtype, s.rows, s.cols, 2, padding);
    const HostMatrix before = random_matrix(dtype, s.rows, s.cols, 3, padding);
    const HostMatrix scalars_before = random_matrix(wide, 1, 2, 4);
    const XieluReference reference(alpha);
    double sums[2] = {}, sizes[2] = {};
    for (int64_t r = 0; r < s.rows; ++r) {
      for (int64_t c = 0; c < s.cols; ++c) {
        const double v = x.at(r, c), half = v > 0 ? v * v : XieluReference::below(v);
        sums[v > 0 ? 0 : 1] += dy.at(r, c) * half;
        sizes[v > 0 ? 0 : 1] += std::abs(dy.at(r, c)) * (v > 0 ? half : 1 + std::abs(v));
      }
    }
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate}) {
      for (const GradMode scalars_mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
        if (scalars_mode == (mode == GradMode::kOverwrite ? GradMode::kAccumulate : GradMode::kSkip)) continue;
        const bool accumulate = mode == GradMode::kAccumulate, add = scalars_mode == GradMode::kAccumulate;
        const HostMatrix dx_start = accumulate ? before : HostMatrix(dtype, s.rows, s.cols, padding);
        const HostMatrix start = add ? scalars_before : HostMatrix(wide, 1, 2);
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {dx_start, start};
              backend.activation_backward({.dy = dy.view(),
                                           .x = x.view(),
                                           .up = {},
                                           .scalars = alpha.view(),
                                           .dx = out[0].mut(),
                                           .dup = {},
                                           .dscalars = out[1].mut(),
                                           .mode = mode,
                                           .scalars_mode = scalars_mode,
                                           .kind = Activation::kXielu},
                                          backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              const auto old = [&](int64_t r, int64_t c) { return accumulate ? before.at(r, c) : 0.0; };
              expect_near(
                  out[0], 1,
                  [&](int64_t r, int64_t c) { return old(r, c) + dy.at(r, c) * reference.slope(x.at(r, c)); },
                  [&](int64_t r, int64_t c) {
                    return std::abs(old(r, c)) + std::abs(dy.at(r, c)) * reference.slope_size(x.at(r, c));
                  },
                  "dx");
              if (scalars_mode == GradMode::kSkip) {
                EXPECT_TRUE(out[1] == start);
                return;
              }
              const double slopes[2] = {reference.p_slope, reference.n_slope};
              const auto of = [&](int64_t c) { return add ? scalars_before.at(c) : 0.0; };
              expect_near(
                  out[1], s.rows * s.cols, [&](int64_t, int64_t c) { return of(c) + sums[c] * slopes[c]; },
                  [&](int64_t, int64_t c) { return std::abs(of(c)) + sizes[c] * slopes[c]; }, "dscalars");
            });
      }
    }
  });
}

// Near 0 the curved part is all that tells expm1 from exp - 1: it is x^2/2, far below the rounding of exp(x).
TEST_F(XieluTest, KeepsItsDigitsNearZero) {
  constexpr int64_t kPoints = 4001;
  HostMatrix x(DType::kFloat32, 1, kPoints);
  for (int64_t i = 0; i < kPoints; ++i) x.set(i, -std::exp(-14.0 + 18.0 * static_cast<double>(i) / (kPoints - 1)));
  const HostMatrix alpha = scalars(DType::kFloat32, 0.2, -1.05);
  const XieluReference reference(alpha);
  backends_.each(
      [&](Backend& backend) {
        Outputs out = {HostMatrix(DType::kFloat32, 1, kPoints)};
        backend.activation_forward(
            {.x = x.view(), .up = {}, .scalars = alpha.view(), .y = out[0].mut(), .kind = Activation::kXielu},
            backends_.stream());
        return out;
      },
      [&](const Outputs& out) {
        for (int64_t i = 0; i < kPoints; ++i) {
          const double v = x.at(i), linear = std::abs(kBeta * v), curved = std::abs(reference.n * v);
          EXPECT_NEAR(out[0].at(i), reference.value(v), 4 * 0x1p-23 * (linear + curved)) << "x = " << v;
        }
      });
}

TEST_F(XieluTest, ExtremeInputsStayFiniteAndNanShows) {
  const std::array<double, 7> values = {0.0, -0.0, 1e15, -1e15, -3e38, 1e-40, std::nan("")};
  HostMatrix x(DType::kFloat32, 1, 7), dy(DType::kFloat32, 1, 7), dx(DType::kFloat32, 1, 7), y(DType::kFloat32, 1, 7);
  HostMatrix dscalars(DType::kFloat32, 1, 2);
  dy.fill(1);
  for (int64_t i = 0; i < 7; ++i) x.set(i, values[static_cast<size_t>(i)]);
  const HostMatrix alpha = scalars(DType::kFloat32, 0.2, -1.05);
  const XieluReference reference(alpha);
  backends_.one().activation_forward(
      {.x = x.view(), .up = {}, .scalars = alpha.view(), .y = y.mut(), .kind = Activation::kXielu}, backends_.stream());
  backends_.finish();
  backends_.one().activation_backward({.dy = dy.view(),
                                       .x = x.view(),
                                       .up = {},
                                       .scalars = alpha.view(),
                                       .dx = dx.mut(),
                                       .dup = {},
                                       .dscalars = dscalars.mut(),
                                       .scalars_mode = GradMode::kOverwrite,
                                       .kind = Activation::kXielu},
                                      backends_.stream());
  backends_.finish();
  for (int64_t i = 0; i < 6; ++i) {
    const double v = x.at(i);
    EXPECT_NEAR(y.at(i), reference.value(v), 1e-6 * reference.size(v)) << v;
    EXPECT_NEAR(dx.at(i), reference.slope(v), 1e-6 * reference.slope_size(v)) << v;
  }
  EXPECT_TRUE(std::isnan(y.at(6)));
  EXPECT_TRUE(std::isnan(dscalars.at(1)));
}

// Neither the number of elements in a row nor a stride tells who adds what first.
TEST_F(XieluTest, SumsHaveTheBitsOfRowsWithoutGaps) {
  const HostMatrix alpha = scalars(DType::kFloat32, 0.2, -1.05);
  const auto sums = [&](int64_t padding) {
    const HostMatrix x = random_matrix(DType::kFloat32, 37, 515, 1, padding),
                     dy = random_matrix(DType::kFloat32, 37, 515, 2, padding);
    HostMatrix dx(DType::kFloat32, 37, 515), dscalars(DType::kFloat32, 1, 2);
    backends_.one().activation_backward({.dy = dy.view(),
                                         .x = x.view(),
                                         .up = {},
                                         .scalars = alpha.view(),
                                         .dx = dx.mut(),
                                         .dup = {},
                                         .dscalars = dscalars.mut(),
                                         .scalars_mode = GradMode::kOverwrite,
                                         .kind = Activation::kXielu},
                                        backends_.stream());
    backends_.finish();
    return dscalars;
  };
  EXPECT_TRUE(sums(0) == sums(5));
}

// Where both softplus have died, the curvatures are 0 above and beta below: half of an ELU.
TEST_F(XieluTest, WithoutCurvatureIsHalfAnElu) {
  const HostMatrix x = random_matrix(DType::kFloat64, 5, 33, 1, 0, 0, 3);
  const HostMatrix alpha = scalars(DType::kFloat64, -200, -200);
  HostMatrix y(DType::kFloat64, 5, 33);
  backends_.one().activation_forward(
      {.x = x.view(), .up = {}, .scalars = alpha.view(), .y = y.mut(), .kind = Activation::kXielu}, backends_.stream());
  backends_.finish();
  for (int64_t i = 0; i < 5 * 33; ++i) {
    const double elu = x.at(i) > 0 ? x.at(i) : std::expm1(x.at(i));
    EXPECT_NEAR(y.at(i), 0.5 * elu, 1e-15) << x.at(i);
  }
}

TEST_F(XieluTest, AWrongCallIsABug) {
  HostMatrix x(DType::kFloat32, 2, 2), y(DType::kFloat32, 2, 2);
  const HostMatrix alpha = scalars(DType::kFloat32, 0, 0), three(DType::kFloat32, 1, 3);
  const auto call = [&](const HostMatrix& up, const HostMatrix& scalars, Activation kind) {
    backends_.one().activation_forward(
        {.x = x.view(), .up = up.view(), .scalars = scalars.view(), .y = y.mut(), .kind = kind}, backends_.stream());
  };
  EXPECT_THROW(call({}, {}, Activation::kXielu), Bug) << "without scalars";
  EXPECT_THROW(call({}, three, Activation::kXielu), Bug) << "three of them";
  EXPECT_THROW(call(x, alpha, Activation::kXielu), Bug) << "gated";
  EXPECT_THROW(call({}, alpha, Activation::kSilu), Bug) << "scalars that nothing reads";
}

}  // namespace
}  // namespace ashlar::test
