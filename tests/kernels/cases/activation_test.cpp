#include <gtest/gtest.h>

#include <limits>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr std::array<Activation, 8> kKinds = {Activation::kRelu,     Activation::kRelu2,     Activation::kGeluErf,
                                              Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu,
                                              Activation::kSigmoid,  Activation::kIdentity};

constexpr std::array<Shape, 6> kActivationShapes = {Shape{1, 1}, {3, 3}, {1, 31}, {5, 33}, {31, 64}, {33, 257}};

/// The textbook formulas, in double.
double act(Activation kind, double x) {
  switch (kind) {
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kGeluErf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kRelu2: return x > 0 ? x * x : 0;
    case Activation::kQuickGelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::kSigmoid: return 1 / (1 + std::exp(-x));
    case Activation::kIdentity: return x;
    case Activation::kXielu: break;  // with scalars: xielu_test.cpp
  }
  ADD_FAILURE();
  return 0;
}

double slope(Activation kind, double x) {
  switch (kind) {
    case Activation::kRelu: return x > 0 ? 1 : 0;
    case Activation::kGeluErf:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    case Activation::kGeluTanh: {
      const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
    case Activation::kRelu2: return x > 0 ? 2 * x : 0;
    case Activation::kQuickGelu: {
      const double s = 1 / (1 + std::exp(-1.702 * x));
      return s * (1 + 1.702 * x * (1 - s));
    }
    case Activation::kSigmoid: return std::exp(-x) / ((1 + std::exp(-x)) * (1 + std::exp(-x)));
    case Activation::kIdentity: return 1;
    case Activation::kXielu: break;
  }
  ADD_FAILURE();
  return 0;
}

/// No less than |act(x)|, for the bound of its rounding.
double size_of_act(Activation kind, double x) {
  if (kind == Activation::kRelu2) return x * x;
  return kind == Activation::kSigmoid ? 1 : std::abs(x);
}
/// Likewise of its slope.
double size_of_slope(double x) { return 2 * (1 + std::abs(x)); }

class ActivationTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  template <typename F>
  void for_each_case(const F& f) {
    for (const DType dtype : kStorageDTypes) {
      for (const Shape shape : kActivationShapes) {
        for (const Activation kind : kKinds) {
          for (const bool gated : {false, true}) {
            for (const int64_t padding : {0, 3}) {
              SCOPED_TRACE(str_cat(name_of(dtype), " [", shape.rows, ", ", shape.cols, "] kind ",
                                   static_cast<int>(kind), gated ? " gated" : " plain", " padding ", padding));
              f(dtype, shape, kind, gated, padding);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
};

TEST_F(ActivationTest, ForwardIsTheFormula) {
  for_each_case([&](DType dtype, Shape s, Activation kind, bool gated, int64_t padding) {
    const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, padding, 0, 3);
    const HostMatrix up = gated ? random_matrix(dtype, s.rows, s.cols, 2, padding) : HostMatrix();
    const auto expected = [&](int64_t r, int64_t c) { return act(kind, x.at(r, c)) * (gated ? up.at(r, c) : 1); };
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {HostMatrix(dtype, s.rows, s.cols, padding)};
          backend.activation_forward({.x = x.view(), .up = up.view(), .y = out[0].mut(), .kind = kind},
                                     backends_.stream());
          return out;
        },
        [&](const Outputs& out) {
          expect_near(
              out[0], 1, expected,
              [&](int64_t r, int64_t c) { return size_of_act(kind, x.at(r, c)) * (gated ? std::abs(up.at(r, c)) : 1); },
              "y");
        });
  });
}

TEST_F(ActivationTest, BackwardIsTheFormulaInEveryMode) {
  for_each_case([&](DType dtype, Shape s, Activation kind, bool gated, int64_t padding) {
    const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, padding, 0, 3);
    const HostMatrix up = gated ? random_matrix(dtype, s.rows, s.cols, 2, padding) : HostMatrix();
    const HostMatrix dy = random_matrix(dtype, s.rows, s.cols, 3, padding);
    const HostMatrix before = random_matrix(dtype, s.rows, s.cols, 4, padding);
    const HostMatrix untouched(dtype, s.rows, s.cols, padding);
    for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
      const bool accumulate = mode == GradMode::kAccumulate;
      const HostMatrix& start = accumulate ? before : untouched;
      const auto old = [&](int64_t r, int64_t c) { return accumulate ? before.at(r, c) : 0.0; };
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {start, start};
            backend.activation_backward({.dy = dy.view(),
                                         .x = x.view(),
                                         .up = up.view(),
                                         .dx = out[0].mut(),
                                         .dup = gated ? out[1].mut() : MutView{},
                                         .mode = mode,
                                         .kind = kind},
                                        backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            if (mode == GradMode::kSkip) {
              EXPECT_TRUE(out[0] == start && out[1] == start);
              return;
            }
            expect_near(
                out[0], 1,
                [&](int64_t r, int64_t c) {
                  return old(r, c) + dy.at(r, c) * slope(kind, x.at(r, c)) * (gated ? up.at(r, c) : 1);
                },
                [&](int64_t r, int64_t c) {
                  return std::abs(old(r, c)) +
                         std::abs(dy.at(r, c) * (gated ? up.at(r, c) : 1)) * size_of_slope(x.at(r, c));
                },
                "dx");
            if (!gated) {
              EXPECT_TRUE(out[1] == start);
              return;
            }
            expect_near(
                out[1], 1, [&](int64_t r, int64_t c) { return old(r, c) + dy.at(r, c) * act(kind, x.at(r, c)); },
                [&](int64_t r, int64_t c) {
                  return std::abs(old(r, c)) + std::abs(dy.at(r, c)) * size_of_act(kind, x.at(r, c));
                },
                "dup");
          });
    }
  });
}

TEST_F(ActivationTest, GradientsMayLieOverTheirValues) {
  for_each_case([&](DType dtype, Shape s, Activation kind, bool gated, int64_t padding) {
    const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, padding, 0, 3);
    const HostMatrix up = gated ? random_matrix(dtype, s.rows, s.cols, 2, padding) : HostMatrix();
    const HostMatrix dy = random_matrix(dtype, s.rows, s.cols, 3, padding);
    const HostMatrix empty(dtype, s.rows, s.cols, padding);
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {empty, empty, x, gated ? up : empty};
          for (const bool in_place : {false, true}) {
            backend.activation_backward({.dy = dy.view(),
                                         .x = in_place ? out[2].view() : x.view(),
                                         .up = !gated     ? ConstView{}
                                               : in_place ? out[3].view()
                                                          : up.view(),
                                         .dx = out[in_place ? 2 : 0].mut(),
                                         .dup = gated ? out[in_place ? 3 : 1].mut() : MutView{},
                                         .kind = kind},
                                        backends_.stream());
          }
          return out;
        },
        [](const Outputs& out) {
          EXPECT_TRUE(out[0] == out[2]);
          EXPECT_TRUE(out[1] == out[3]);
        });
  });
}

/// Columns [begin, begin + count) of a view.
template <AnyView View>
View columns(const View& v, int64_t begin, int64_t count) {
  return {&v.template as<float>()[begin], v.dtype, v.rows, count, v.stride};
}

// Gate and up are slices of one product's rows, their gradients of another matrix with rows of its own: every offset
// and stride is odd, and what lies between the slices is nobody's.
TEST_F(ActivationTest, GateAndUpAreSlicesOfWiderRows) {
  constexpr int64_t kGate = 3, kUpGap = 5;  // columns before the gate, and between it and up
  for (const Shape s : kActivationShapes) {
    SCOPED_TRACE(str_cat("[", s.rows, ", ", s.cols, "]"));
    const int64_t F = s.cols, up_at = kGate + F + kUpGap, width = up_at + F + 2, grad_up_at = F + 1;
    const HostMatrix in = random_matrix(DType::kFloat32, s.rows, width, 1, 1, 0, 3);
    const HostMatrix dy = random_matrix(DType::kFloat32, s.rows, F, 2, 4);
    const ConstView gate = columns(in.view(), kGate, F), up = columns(in.view(), up_at, F);
    const HostMatrix before = random_matrix(DType::kFloat32, s.rows, grad_up_at + F + 4, 3);
    for (const bool accumulate : {false, true}) {
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {HostMatrix(DType::kFloat32, s.rows, F, 7), before};
            backend.activation_forward({.x = gate, .up = up, .y = out[0].mut()}, backends_.stream());
            backend.activation_backward({.dy = dy.view(),
                                         .x = gate,
                                         .up = up,
                                         .dx = columns(out[1].mut(), 0, F),
                                         .dup = columns(out[1].mut(), grad_up_at, F),
                                         .mode = accumulate ? GradMode::kAccumulate : GradMode::kOverwrite},
                                        backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            constexpr Activation kKind = Activation::kSilu;
            const auto g = [&](int64_t r, int64_t c) { return in.at(r, kGate + c); };
            const auto u = [&](int64_t r, int64_t c) { return in.at(r, up_at + c); };
            expect_near(
                out[0], 1, [&](int64_t r, int64_t c) { return act(kKind, g(r, c)) * u(r, c); },
                [&](int64_t r, int64_t c) { return std::abs(g(r, c) * u(r, c)); }, "y");
            const auto old = [&](int64_t r, int64_t c) { return accumulate ? before.at(r, c) : 0.0; };
            expect_near(
                out[1], 1,
                [&](int64_t r, int64_t c) {
                  if (c < F) return old(r, c) + dy.at(r, c) * slope(kKind, g(r, c)) * u(r, c);
                  const int64_t k = c - grad_up_at;
                  if (k < 0 || k >= F) return before.at(r, c);
                  return old(r, c) + dy.at(r, k) * act(kKind, g(r, k));
                },
                [&](int64_t r, int64_t c) {
                  if (c < F) return std::abs(old(r, c)) + std::abs(dy.at(r, c) * u(r, c)) * (1 + std::abs(g(r, c)));
                  const int64_t k = c - grad_up_at;
                  if (k < 0 || k >= F) return 0.0;
                  return std::abs(old(r, c)) + std::abs(dy.at(r, k) * g(r, k));
                },
                "dgate and dup");
          });
    }
  }
}

// The vector functions themselves: relative error in units of the last place, both tails included.
TEST_F(ActivationTest, SmoothKindsAreAccurateToAFewUlpEverywhere) {
  constexpr int64_t kPoints = 40001;
  HostMatrix x(DType::kFloat32, 1, kPoints);
  for (int64_t i = 0; i < kPoints; ++i) x.set(i, -20.0 + static_cast<double>(i) * 1e-3);
  for (const Activation kind :
       {Activation::kGeluErf, Activation::kGeluTanh, Activation::kSilu, Activation::kQuickGelu, Activation::kSigmoid}) {
    backends_.each(
        [&](Backend& backend) {
          Outputs out = {HostMatrix(DType::kFloat32, 1, kPoints)};
          backend.activation_forward({.x = x.view(), .up = {}, .y = out[0].mut(), .kind = kind}, backends_.stream());
          return out;
        },
        [&](const Outputs& out) {
          double worst = 0;
          for (int64_t i = 0; i < kPoints; ++i) {
            const double v = x.at(i);
            // tanh in double loses the negative tail that the kernel keeps: compare with the logistic form there.
            const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
            const double expected = kind == Activation::kGeluTanh ? v / (1 + std::exp(-2 * u)) : act(kind, v);
            if (std::abs(expected) < 1e-30) {
              EXPECT_LE(std::abs(out[0].at(i)), 2e-30) << "x = " << v;
              continue;
            }
            // The argument's own rounding is amplified by x f'(x) / f(x), which grows like the exponent.
            const double amplified = kind == Activation::kGeluTanh    ? 1 + std::abs(2 * u)
                                     : kind == Activation::kQuickGelu ? 1 + std::abs(1.702 * v)
                                                                      : 1;
            const double ulp = std::abs(expected) * 0x1p-23 * amplified;
            worst = std::max(worst, std::abs(out[0].at(i) - expected) / ulp);
          }
          EXPECT_LE(worst, 4.0) << "kind " << static_cast<int>(kind);
        });
  }
}

/// What an activation is far from 0, where its exponential has died.
double far_act(Activation kind, double x) {
  if (kind == Activation::kIdentity) return x;
  if (x < 0) return 0;
  return kind == Activation::kSigmoid ? 1 : kind == Activation::kRelu2 ? x * x : x;
}
double far_slope(Activation kind, double x) {
  if (kind == Activation::kIdentity) return 1;
  if (x < 0 || kind == Activation::kSigmoid) return 0;
  return kind == Activation::kRelu2 ? 2 * x : 1;
}

// Finite wherever the function is: relu2 overflows where the square does.
TEST_F(ActivationTest, ExtremeInputsStayFiniteAndNanShows) {
  const std::array<double, 8> values = {0.0, -0.0, 1e4, -1e4, 3e38, -3e38, 1e-40, std::nan("")};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    HostMatrix x(dtype, 1, 8);
    HostMatrix dy(dtype, 1, 8);
    dy.fill(1);
    for (int64_t i = 0; i < 8; ++i) x.set(i, values[static_cast<size_t>(i)]);
    for (const Activation kind : kKinds) {
      HostMatrix y(dtype, 1, 8);
      HostMatrix dx(dtype, 1, 8);
      backends_.one().activation_forward({.x = x.view(), .up = {}, .y = y.mut(), .kind = kind}, backends_.stream());
      backends_.finish();
      backends_.one().activation_backward(
          {.dy = dy.view(), .x = x.view(), .up = {}, .dx = dx.mut(), .dup = {}, .kind = kind}, backends_.stream());
      backends_.finish();
      for (int64_t i = 0; i < 7; ++i) {
        const double v = x.at(i);
        SCOPED_TRACE(str_cat(name_of(dtype), " ", name_of(kind), " of ", v));
        if (std::abs(v) <= 1) {
          EXPECT_DOUBLE_EQ(y.at(i), rounded(dtype, act(kind, v)));
          EXPECT_NEAR(dx.at(i), slope(kind, v), 1e-6);
        } else {
          EXPECT_DOUBLE_EQ(y.at(i), rounded(dtype, far_act(kind, v)));
          EXPECT_DOUBLE_EQ(dx.at(i), rounded(dtype, far_slope(kind, v)));
        }
      }
      EXPECT_TRUE(std::isnan(y.at(7)));
    }
  }
}

TEST_F(ActivationTest, BackwardIsTheDerivativeOfForward) {
  constexpr double kStep = 1e-5;
  for (const Activation kind : kKinds) {
    HostMatrix x = random_matrix(DType::kFloat64, 3, 7, 1, 0, 0, 2);
    HostMatrix up = random_matrix(DType::kFloat64, 3, 7, 2);
    const HostMatrix dy = random_matrix(DType::kFloat64, 3, 7, 3);
    HostMatrix dx(DType::kFloat64, 3, 7);
    HostMatrix dup(DType::kFloat64, 3, 7);
    backends_.one().activation_backward(
        {.dy = dy.view(), .x = x.view(), .up = up.view(), .dx = dx.mut(), .dup = dup.mut(), .kind = kind},
        backends_.stream());
    backends_.finish();
    const auto difference = [&](HostMatrix& m, int64_t i) {
      double sums[2];
      const double value = m.at(i);
      for (const int side : {0, 1}) {
        m.set(i, value + (side == 0 ? kStep : -kStep));
        HostMatrix y(DType::kFloat64, 3, 7);
        backends_.one().activation_forward({.x = x.view(), .up = up.view(), .y = y.mut(), .kind = kind},
                                           backends_.stream());
        backends_.finish();
        sums[side] = 0;
        for (int64_t j = 0; j < 21; ++j) sums[side] += dy.at(j) * y.at(j);
      }
      m.set(i, value);
      return (sums[0] - sums[1]) / (2 * kStep);
    };
    for (int64_t i = 0; i < 21; ++i) {
      EXPECT_NEAR(dx.at(i), difference(x, i), 1e-6);
      EXPECT_NEAR(dup.at(i), difference(up, i), 1e-6);
    }
  }
}

/// The gate and the linear half of a clamped layer, and whether each moves with its input.
double gate_of(double x, double clamp) { return std::min(x, clamp); }
double linear_of(double up, double clamp, double offset) { return std::clamp(up, -clamp, clamp) + offset; }

// Values on both sides of the bounds and on them: 2.5 is one in every dtype.
TEST_F(ActivationTest, ClampAndOffsetAreTheFormula) {
  constexpr double kClamp = 2.5, kOffset = 1;
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (const DType dtype : kStorageDTypes) {
    for (const Activation kind : kKinds) {
      for (const double clamp : {kClamp, 0.0}) {
        SCOPED_TRACE(str_cat(name_of(dtype), " ", name_of(kind), " clamp ", clamp));
        const double bound = clamp == 0 ? kNone : clamp;
        HostMatrix x = random_matrix(dtype, 7, 35, 1, 1, 0, 3), up = random_matrix(dtype, 7, 35, 2, 2, 0, 3);
        for (int64_t c = 0; c < 4; ++c) {
          x.set(c, c % 2 == 0 ? kClamp : -kClamp);
          up.set(c, c < 2 ? kClamp : -kClamp);
        }
        const HostMatrix dy = random_matrix(dtype, 7, 35, 3), before = random_matrix(dtype, 7, 35, 4);
        const auto gate = [&](int64_t r, int64_t c) { return gate_of(x.at(r, c), bound); };
        const auto linear = [&](int64_t r, int64_t c) { return linear_of(up.at(r, c), bound, kOffset); };
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {HostMatrix(dtype, 7, 35), before, before};
              backend.activation_forward({.x = x.view(),
                                          .up = up.view(),
                                          .y = out[0].mut(),
                                          .kind = kind,
                                          .clamp = clamp,
                                          .linear_offset = kOffset},
                                         backends_.stream());
              backend.activation_backward({.dy = dy.view(),
                                           .x = x.view(),
                                           .up = up.view(),
                                           .dx = out[1].mut(),
                                           .dup = out[2].mut(),
                                           .mode = GradMode::kAccumulate,
                                           .kind = kind,
                                           .clamp = clamp,
                                           .linear_offset = kOffset},
                                          backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              expect_near(
                  out[0], 1, [&](int64_t r, int64_t c) { return act(kind, gate(r, c)) * linear(r, c); },
                  [&](int64_t r, int64_t c) { return size_of_act(kind, gate(r, c)) * (std::abs(up.at(r, c)) + 1); },
                  "y");
              expect_near(
                  out[1], 1,
                  [&](int64_t r, int64_t c) {
                    const double grad = dy.at(r, c) * slope(kind, gate(r, c)) * linear(r, c);
                    return before.at(r, c) + (x.at(r, c) > bound ? 0 : grad);
                  },
                  [&](int64_t r, int64_t c) {
                    return std::abs(before.at(r, c)) +
                           std::abs(dy.at(r, c)) * size_of_slope(gate(r, c)) * (std::abs(up.at(r, c)) + 1);
                  },
                  "dx");
              expect_near(
                  out[2], 1,
                  [&](int64_t r, int64_t c) {
                    return before.at(r, c) + (std::abs(up.at(r, c)) > bound ? 0 : dy.at(r, c) * act(kind, gate(r, c)));
                  },
                  [&](int64_t r, int64_t c) {
                    return std::abs(before.at(r, c)) + std::abs(dy.at(r, c)) * size_of_act(kind, gate(r, c));
                  },
                  "dup");
            });
      }
    }
  }
}

TEST_F(ActivationTest, ANanPassesTheClamp) {
  HostMatrix x(DType::kFloat32, 1, 2), up(DType::kFloat32, 1, 2), y(DType::kFloat32, 1, 2);
  x.set(0, std::nan(""));
  x.set(1, 1);
  up.set(0, 1);
  up.set(1, std::nan(""));
  backends_.one().activation_forward(
      {.x = x.view(), .up = up.view(), .y = y.mut(), .kind = Activation::kSigmoid, .clamp = 2}, backends_.stream());
  backends_.finish();
  EXPECT_TRUE(std::isnan(y.at(0)) && std::isnan(y.at(1)));
}

TEST_F(ActivationTest, ClampAndOffsetNeedTheLinearHalf) {
  const HostMatrix x = random_matrix(DType::kFloat32, 2, 2, 1);
  HostMatrix y(DType::kFloat32, 2, 2);
  const auto forward = [&](double clamp, double offset) {
    backends_.one().activation_forward({.x = x.view(), .up = {}, .y = y.mut(), .clamp = clamp, .linear_offset = offset},
                                       backends_.stream());
  };
  EXPECT_THROW(forward(7, 0), Bug);
  EXPECT_THROW(forward(0, 1), Bug);
}

}  // namespace
}  // namespace ashlar::test
