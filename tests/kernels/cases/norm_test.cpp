#include <gtest/gtest.h>

#include <span>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr double kNormEps = 1e-3;

struct NormOptions {
  NormType type;
  bool gamma;
  bool beta;
  bool unit_offset;

  NormVariant variant() const { return {.type = type, .eps = kNormEps, .unit_offset = unit_offset}; }
};

constexpr std::array<NormOptions, 7> kNormOptions = {NormOptions{NormType::kLayerNorm, true, true, false},
                                                     {NormType::kLayerNorm, true, false, true},
                                                     {NormType::kLayerNorm, false, false, false},
                                                     {NormType::kRmsNorm, true, false, false},
                                                     {NormType::kRmsNorm, true, true, true},
                                                     {NormType::kRmsNorm, true, false, true},
                                                     {NormType::kRmsNorm, false, false, false}};

/// The inputs of one case and the plain mathematics over them, in double.
struct NormProblem {
  NormProblem(DType type_in, Shape s, NormOptions o) : dtype(type_in), shape(s), options(o) {
    x = random_matrix(dtype, s.rows, s.cols, 1, 3, 0.5, 2.0);
    dy = random_matrix(dtype, s.rows, s.cols, 2, 1);
    if (o.gamma) gamma = random_matrix(dtype, 1, s.cols, 3, 0, o.unit_offset ? 0.0 : 1.0, 0.3);
    if (o.beta) beta = random_matrix(dtype, 1, s.cols, 4);
    const auto cols = static_cast<double>(s.cols);
    for (int64_t n = 0; n < s.rows; ++n) {
      double sum = 0;
      for (int64_t c = 0; c < s.cols; ++c) sum += x.at(n, c);
      const double m = layernorm() ? sum / cols : 0.0;
      double squares = 0;
      for (int64_t c = 0; c < s.cols; ++c) squares += (x.at(n, c) - m) * (x.at(n, c) - m);
      mean.push_back(m);
      rstd.push_back(1.0 / std::sqrt(squares / cols + kNormEps));
      double h_sum = 0;
      double hx_sum = 0;
      double h_abs = 0;
      for (int64_t c = 0; c < s.cols; ++c) {
        h_sum += h(n, c);
        hx_sum += h(n, c) * xhat(n, c);
        h_abs += std::abs(h(n, c)) * (1 + std::abs(xhat(n, c)));
      }
      sum_h.push_back(layernorm() ? h_sum : 0.0);
      sum_hx.push_back(hx_sum);
      sum_abs.push_back(h_abs);
    }
  }
  bool layernorm() const { return options.type == NormType::kLayerNorm; }
  double g(int64_t c) const {
    return (options.gamma ? gamma.at(c) : 1.0) + (options.gamma && options.unit_offset ? 1.0 : 0.0);
  }
  double b(int64_t c) const { return options.beta ? beta.at(c) : 0.0; }
  double xhat(int64_t n, int64_t c) const { return (x.at(n, c) - mean[n]) * rstd[n]; }
  double h(int64_t n, int64_t c) const { return dy.at(n, c) * g(c); }
  double y(int64_t n, int64_t c) const { return xhat(n, c) * g(c) + b(c); }
  /// Sizes of the terms: an error of the row's statistics moves every element of the row.
  double y_size(int64_t n, int64_t c) const {
    return (std::abs(x.at(n, c)) + std::abs(mean[n]) + 1) * rstd[n] * std::abs(g(c)) + std::abs(b(c));
  }
  double dx(int64_t n, int64_t c) const {
    const auto cols = static_cast<double>(shape.cols);
    return rstd[n] * (h(n, c) - sum_h[n] / cols - xhat(n, c) * sum_hx[n] / cols);
  }
  double dx_size(int64_t n, int64_t c) const {
    const auto cols = static_cast<double>(shape.cols);
    const double xhat_size = (std::abs(x.at(n, c)) + std::abs(mean[n]) + 1) * rstd[n];
    return rstd[n] * (std::abs(h(n, c)) + (1 + xhat_size) * sum_abs[n] / cols);
  }
  double dgamma(int64_t c) const {
    double sum = 0;
    for (int64_t n = 0; n < shape.rows; ++n) sum += dy.at(n, c) * xhat(n, c);
    return sum;
  }
  double dbeta(int64_t c) const {
    double sum = 0;
    for (int64_t n = 0; n < shape.rows; ++n) sum += dy.at(n, c);
    return sum;
  }
  double dgamma_size(int64_t c) const {
    double sum = 0;
    for (int64_t n = 0; n < shape.rows; ++n)
      sum += std::abs(dy.at(n, c)) * (std::abs(x.at(n, c)) + std::abs(mean[n]) + 1) * rstd[n];
    return sum;
  }

  DType dtype;
  Shape shape;
  NormOptions options;
  HostMatrix x, dy, gamma, beta;
  std::vector<double> mean, rstd, sum_h, sum_hx, sum_abs;
};

class NormTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  /// Forward on `backend`: {y, mean, rstd}.
  Outputs forward(Backend& backend, const NormProblem& p) {
    const DType acc = accumulate_dtype(p.dtype);
    Outputs out = {HostMatrix(p.dtype, p.shape.rows, p.shape.cols, 2), HostMatrix(acc, 1, p.shape.rows),
                   HostMatrix(acc, 1, p.shape.rows)};
    if (!p.layernorm()) out[1].fill(0);
    backend.norm_forward({.x = p.x.view(),
                          .gamma = p.gamma.view(),
                          .beta = p.beta.view(),
                          .y = out[0].mut(),
                          .mean = p.layernorm() ? out[1].mut() : MutView{},
                          .rstd = out[2].mut(),
                          .variant = p.options.variant()},
                         backends_.stream());
    backends_.finish();
    return out;
  }

  void check_forward(const NormProblem& p);
  void check_backward(const NormProblem& p);

  template <typename F>
  void for_each_problem(const F& f, std::span<const Shape> shapes = kShapes) {
    for (const DType dtype : kStorageDTypes) {
      for (const Shape shape : shapes) {
        for (const NormOptions& options : kNormOptions) {
          SCOPED_TRACE(str_cat(name_of(dtype), " [", shape.rows, ", ", shape.cols, "] ",
                               options.type == NormType::kLayerNorm ? "layernorm" : "rmsnorm", " gamma ", options.gamma,
                               " beta ", options.beta, " unit_offset ", options.unit_offset));
          f(NormProblem(dtype, shape, options));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
};

void NormTest::check_forward(const NormProblem& p) {
  backends_.each([&](Backend& backend) { return forward(backend, p); },
                 [&](const Outputs& out) {
                   const int64_t length = p.shape.cols;
                   expect_near(
                       out[0], length, [&](int64_t n, int64_t c) { return p.y(n, c); },
                       [&](int64_t n, int64_t c) { return p.y_size(n, c); }, "y");
                   if (p.layernorm()) {
                     expect_near(
                         out[1], length, [&](int64_t, int64_t n) { return p.mean[n]; },
                         [&](int64_t, int64_t n) { return 3 + std::abs(p.mean[n]); }, "mean");
                   }
                   expect_near(
                       out[2], length, [&](int64_t, int64_t n) { return p.rstd[n]; },
                       [&](int64_t, int64_t n) { return p.rstd[n] * (2 + 10 * p.rstd[n]); }, "rstd");
                 });
}

TEST_F(NormTest, ForwardIsTheFormula) {
  for_each_problem([&](const NormProblem& p) { check_forward(p); });
}

void NormTest::check_backward(const NormProblem& p) {
  const DType acc = accumulate_dtype(p.dtype);
  for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
    const HostMatrix before_dx = random_matrix(p.dtype, p.shape.rows, p.shape.cols, 5, 2);
    const HostMatrix before_param = random_matrix(acc, 1, p.shape.cols, 6);
    const bool accumulate = mode == GradMode::kAccumulate;
    const auto run = [&](Backend& backend) {
      const Outputs statistics = forward(backend, p);
      Outputs out = {HostMatrix(p.dtype, p.shape.rows, p.shape.cols, 2), HostMatrix(acc, 1, p.shape.cols),
                     HostMatrix(acc, 1, p.shape.cols)};
      if (accumulate) out = {before_dx, before_param, before_param};
      backend.norm_backward({.dy = p.dy.view(),
                             .x = p.x.view(),
                             .gamma = p.gamma.view(),
                             .mean = p.layernorm() ? statistics[1].view() : ConstView{},
                             .rstd = statistics[2].view(),
                             .dx = mode == GradMode::kSkip ? MutView{} : out[0].mut(),
                             .dgamma = p.options.gamma ? out[1].mut() : MutView{},
                             .dbeta = p.options.beta ? out[2].mut() : MutView{},
                             .dx_mode = mode,
                             .param_mode = mode,
                             .variant = p.options.variant()},
                            backends_.stream());
      backends_.finish();  // before the statistics go
      return out;
    };
    backends_.each(run, [&](const Outputs& out) {
      if (mode == GradMode::kSkip) {
        EXPECT_TRUE(out[0] == HostMatrix(p.dtype, p.shape.rows, p.shape.cols, 2));
        EXPECT_TRUE(out[1] == HostMatrix(acc, 1, p.shape.cols));
        return;
      }
      const auto old_dx = [&](int64_t n, int64_t c) { return accumulate ? before_dx.at(n, c) : 0.0; };
      const auto old_param = [&](int64_t c) { return accumulate ? before_param.at(c) : 0.0; };
      expect_near(
          out[0], p.shape.cols, [&](int64_t n, int64_t c) { return old_dx(n, c) + p.dx(n, c); },
          [&](int64_t n, int64_t c) { return std::abs(old_dx(n, c)) + p.dx_size(n, c); }, "dx");
      const int64_t length = p.shape.rows + p.shape.cols;
      if (p.options.gamma) {
        expect_near(
            out[1], length, [&](int64_t, int64_t c) { return old_param(c) + p.dgamma(c); },
            [&](int64_t, int64_t c) { return std::abs(old_param(c)) + p.dgamma_size(c); }, "dgamma");
      } else {
        EXPECT_TRUE(out[1] == (accumulate ? before_param : HostMatrix(acc, 1, p.shape.cols)));
      }
      if (p.options.beta) {
        expect_near(
            out[2], length, [&](int64_t, int64_t c) { return old_param(c) + p.dbeta(c); },
            [&](int64_t, int64_t c) { return std::abs(old_param(c)) + p.dgamma_size(c) + std::abs(p.dbeta(c)); },
            "dbeta");
      }
    });
  }
}

TEST_F(NormTest, BackwardIsTheFormulaInEveryMode) {
  for_each_problem([&](const NormProblem& p) { check_backward(p); });
}

// Rows beyond what a block holds of one.
TEST_F(NormTest, WideRows) {
  constexpr std::array<Shape, 4> kWide = {Shape{5, 1040}, {2, 2051}, {3, 8208}, {1, 16385}};
  for_each_problem(
      [&](const NormProblem& p) {
        if (p.options.unit_offset || !p.options.gamma) return;
        check_forward(p);
        check_backward(p);
      },
      kWide);
}

TEST_F(NormTest, DxMayAliasDy) {
  const NormProblem p(DType::kFloat32, {33, 257}, kNormOptions[0]);
  Backend& backend = backends_.one();
  const Outputs statistics = forward(backend, p);
  HostMatrix apart(p.dtype, 33, 257, 1);
  HostMatrix together = p.dy;
  for (HostMatrix* dx : {&apart, &together}) {
    backend.norm_backward({.dy = dx == &together ? together.view() : p.dy.view(),
                           .x = p.x.view(),
                           .gamma = p.gamma.view(),
                           .mean = statistics[1].view(),
                           .rstd = statistics[2].view(),
                           .dx = dx->mut(),
                           .dgamma = {},
                           .dbeta = {},
                           .variant = {.type = NormType::kLayerNorm}},
                          backends_.stream());
  }
  backends_.finish();
  EXPECT_TRUE(apart == together);
}

TEST_F(NormTest, SplitFormEqualsTheWholeForm) {
  for_each_problem([&](const NormProblem& p) {
    if (p.shape.cols < 2) return;
    Backend& backend = backends_.one();
    const DType acc = accumulate_dtype(p.dtype);
    const int64_t rows = p.shape.rows;
    const int64_t cut = p.shape.cols / 2 + p.shape.cols % 3 % 2;
    const auto columns = [&](const ConstView& v, int part) {
      const int64_t begin = part == 0 ? 0 : cut;
      ConstView out = v;
      if (!v) return out;
      out.data = static_cast<const char*>(v.data) + begin * size_of(v.dtype);
      out.cols = part == 0 ? cut : v.cols - cut;
      return out;
    };
    const auto mut_columns = [&](MutView v, int part) {
      const ConstView c = columns(v, part);
      v.data = const_cast<void*>(c.data);
      v.cols = c.cols;
      return v;
    };
    const auto cols = static_cast<double>(p.shape.cols);
    // 1. statistics: the row sums of both halves added, as ranks would
    const auto row_sums = [&](bool squares, const HostMatrix& center) {
      HostMatrix total(acc, 1, rows);
      total.fill(0);
      for (const int part : {0, 1}) {
        HostMatrix sum(acc, 1, rows);
        backend.norm_row_stats({.x = columns(p.x.view(), part),
                                .center = center.view(),
                                .sum = squares ? MutView{} : sum.mut(),
                                .sum_squares = squares ? sum.mut() : MutView{}},
                               backends_.stream());
        backends_.finish();
        for (int64_t n = 0; n < rows; ++n) total.set(n, total.at(n) + sum.at(n));
      }
      return total;
    };
    HostMatrix mean;
    if (p.layernorm()) {
      mean = row_sums(false, HostMatrix());
      for (int64_t n = 0; n < rows; ++n) mean.set(n, mean.at(n) / cols);
    }
    HostMatrix rstd = row_sums(true, mean);
    for (int64_t n = 0; n < rows; ++n) rstd.set(n, 1 / std::sqrt(rstd.at(n) / cols + kNormEps));
    // 2. apply
    HostMatrix y(p.dtype, rows, p.shape.cols);
    for (const int part : {0, 1}) {
      backend.norm_apply({.x = columns(p.x.view(), part),
                          .gamma = columns(p.gamma.view(), part),
                          .beta = columns(p.beta.view(), part),
                          .mean = mean.view(),
                          .rstd = rstd.view(),
                          .y = mut_columns(y.mut(), part),
                          .unit_offset = p.options.unit_offset},
                         backends_.stream());
    }
    backends_.finish();
    expect_near(
        y, p.shape.cols, [&](int64_t n, int64_t c) { return p.y(n, c); },
        [&](int64_t n, int64_t c) { return p.y_size(n, c); }, "y");
    // 3. backward: row sums of both halves, then apply
    HostMatrix sum_h(acc, 1, rows);
    HostMatrix sum_hx(acc, 1, rows);
    sum_h.fill(0);
    sum_hx.fill(0);
    for (const int part : {0, 1}) {
      HostMatrix h(acc, 1, rows);
      HostMatrix hx(acc, 1, rows);
      backend.norm_backward_row_sums({.dy = columns(p.dy.view(), part),
                                      .x = columns(p.x.view(), part),
                                      .gamma = columns(p.gamma.view(), part),
                                      .mean = mean.view(),
                                      .rstd = rstd.view(),
                                      .sum_h = p.layernorm() ? h.mut() : MutView{},
                                      .sum_hx = hx.mut(),
                                      .unit_offset = p.options.unit_offset},
                                     backends_.stream());
      backends_.finish();
      for (int64_t n = 0; n < rows; ++n) {
        if (p.layernorm()) sum_h.set(n, sum_h.at(n) + h.at(n));
        sum_hx.set(n, sum_hx.at(n) + hx.at(n));
      }
    }
    HostMatrix dx(p.dtype, rows, p.shape.cols);
    HostMatrix dgamma(acc, 1, p.shape.cols);
    HostMatrix dbeta(acc, 1, p.shape.cols);
    for (const int part : {0, 1}) {
      backend.norm_backward_apply({.dy = columns(p.dy.view(), part),
                                   .x = columns(p.x.view(), part),
                                   .gamma = columns(p.gamma.view(), part),
                                   .mean = mean.view(),
                                   .rstd = rstd.view(),
                                   .sum_h = p.layernorm() ? sum_h.view() : ConstView{},
                                   .sum_hx = sum_hx.view(),
                                   .c_total = p.shape.cols,
                                   .dx = mut_columns(dx.mut(), part),
                                   .dgamma = mut_columns(dgamma.mut(), part),
                                   .dbeta = mut_columns(dbeta.mut(), part),
                                   .param_mode = GradMode::kOverwrite,
                                   .unit_offset = p.options.unit_offset},
                                  backends_.stream());
    }
    backends_.finish();
    expect_near(
        dx, p.shape.cols, [&](int64_t n, int64_t c) { return p.dx(n, c); },
        [&](int64_t n, int64_t c) { return p.dx_size(n, c); }, "dx");
    const int64_t length = rows + p.shape.cols;
    expect_near(
        dgamma, length, [&](int64_t, int64_t c) { return p.dgamma(c); },
        [&](int64_t, int64_t c) { return p.dgamma_size(c); }, "dgamma");
    expect_near(
        dbeta, length, [&](int64_t, int64_t c) { return p.dbeta(c); },
        [&](int64_t, int64_t c) { return p.dgamma_size(c) + std::abs(p.dbeta(c)); }, "dbeta");
  });
}

TEST_F(NormTest, BackwardIsTheDerivativeOfForward) {
  constexpr double kStep = 1e-5;
  for (const NormOptions& options : kNormOptions) {
    NormProblem p(DType::kFloat64, {3, 7}, options);
    Backend& backend = backends_.one();
    const auto weighted = [&] {  // sum of dy * y
      const Outputs out = forward(backend, p);
      double sum = 0;
      for (int64_t n = 0; n < 3; ++n) {
        for (int64_t c = 0; c < 7; ++c) sum += p.dy.at(n, c) * out[0].at(n, c);
      }
      return sum;
    };
    const auto slope = [&](HostMatrix& m, int64_t r, int64_t c) {
      const double value = m.at(r, c);
      m.set(r, c, value + kStep);
      const double above = weighted();
      m.set(r, c, value - kStep);
      const double below = weighted();
      m.set(r, c, value);
      return (above - below) / (2 * kStep);
    };
    const Outputs statistics = forward(backend, p);
    HostMatrix dx(p.dtype, 3, 7);
    HostMatrix dgamma(p.dtype, 1, 7);
    HostMatrix dbeta(p.dtype, 1, 7);
    backend.norm_backward({.dy = p.dy.view(),
                           .x = p.x.view(),
                           .gamma = p.gamma.view(),
                           .mean = p.layernorm() ? statistics[1].view() : ConstView{},
                           .rstd = statistics[2].view(),
                           .dx = dx.mut(),
                           .dgamma = dgamma.mut(),
                           .dbeta = dbeta.mut(),
                           .param_mode = GradMode::kOverwrite,
                           .variant = options.variant()},
                          backends_.stream());
    backends_.finish();
    for (int64_t c = 0; c < 7; ++c) {
      for (int64_t n = 0; n < 3; ++n) EXPECT_NEAR(dx.at(n, c), slope(p.x, n, c), 1e-6);
      if (options.gamma) {
        EXPECT_NEAR(dgamma.at(c), slope(p.gamma, 0, c), 1e-6);
      }
      if (options.beta) {
        EXPECT_NEAR(dbeta.at(c), slope(p.beta, 0, c), 1e-6);
      }
    }
  }
}

TEST_F(NormTest, LayerNormEqualsRmsNormOnRowsOfZeroMean) {
  NormProblem p(DType::kFloat64, {5, 33}, kNormOptions[2]);
  for (int64_t n = 0; n < 5; ++n) {
    for (int64_t c = 0; c < 33; ++c) p.x.set(n, c, p.x.at(n, c) - p.mean[n]);
  }
  const Outputs layernorm = forward(backends_.one(), p);
  p.options = kNormOptions[6];
  const Outputs rmsnorm = forward(backends_.one(), p);
  expect_near(
      layernorm[0], 33, [&](int64_t n, int64_t c) { return rmsnorm[0].at(n, c); }, [](int64_t, int64_t) { return 4.0; },
      "y");
}

}  // namespace
}  // namespace ashlar::test
