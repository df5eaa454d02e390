// Norms over the heads of a row, and statistics from sums: against the formulas of core/backend/norm.h in double.
#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr double kHeadNormEps = 1e-3;

/// Rows of heads: odd ones, aligned ones, and more than fit into one block.
struct HeadShape {
  int64_t rows, heads, width;
};
constexpr std::array<HeadShape, 7> kHeadShapes = {HeadShape{1, 1, 1}, {3, 5, 3},    {5, 2, 33}, {33, 3, 16},
                                                  {7, 2, 257},        {301, 4, 64}, {2, 3, 512}};

struct HeadNormOptions {
  NormType type;
  bool gamma, beta, own_gains, unit_offset;
};
constexpr std::array<HeadNormOptions, 6> kHeadNormOptions = {
    HeadNormOptions{NormType::kRmsNorm, true, false, false, false},
    {NormType::kRmsNorm, true, false, true, true},
    {NormType::kRmsNorm, false, false, false, false},
    {NormType::kLayerNorm, true, true, true, false},
    {NormType::kLayerNorm, true, true, false, false},
    {NormType::kLayerNorm, true, false, true, false}};

/// What a call reads, and the formulas over it.
struct HeadNormProblem {
  HeadNormProblem(DType type, HeadShape s, HeadNormOptions o) : dtype(type), shape(s), options(o) {
    const int64_t cols = s.heads * s.width, gains = o.own_gains ? cols : s.width;
    x = random_matrix(dtype, s.rows, cols, 1, 5, 0.5, 2.0);
    dy = random_matrix(dtype, s.rows, cols, 2, 3);
    if (o.gamma) gamma = random_matrix(dtype, 1, gains, 3, 0, o.unit_offset ? 0.0 : 1.0, 0.3);
    if (o.beta) beta = random_matrix(dtype, 1, gains, 4);
    const auto width = static_cast<double>(s.width);
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t n = 0; n < s.rows; ++n) {
        double sum = 0, squares = 0;
        for (int64_t c = 0; c < s.width; ++c) sum += x.at(n, h * s.width + c);
        mean.push_back(layernorm() ? sum / width : 0);
        for (int64_t c = 0; c < s.width; ++c) squares += std::pow(x.at(n, h * s.width + c) - mean.back(), 2);
        rstd.push_back(1 / std::sqrt(squares / width + kHeadNormEps));
        sum_h.push_back(0);
        sum_hx.push_back(0);
        sum_abs.push_back(0);
        for (int64_t c = h * s.width; c < (h + 1) * s.width; ++c) {
          sum_h.back() += layernorm() ? grad(n, c) : 0;
          sum_hx.back() += grad(n, c) * xhat(n, c);
          sum_abs.back() += std::abs(grad(n, c)) * (1 + std::abs(xhat(n, c)));
        }
      }
    }
  }
  bool layernorm() const { return options.type == NormType::kLayerNorm; }
  size_t at(int64_t n, int64_t c) const { return static_cast<size_t>(c / shape.width * shape.rows + n); }
  int64_t gain_index(int64_t c) const { return options.own_gains ? c : c % shape.width; }
  double gain(int64_t c) const { return (options.gamma ? gamma.at(gain_index(c)) : 1) + (options.unit_offset ? 1 : 0); }
  double bias(int64_t c) const { return options.beta ? beta.at(gain_index(c)) : 0; }
  double xhat(int64_t n, int64_t c) const { return (x.at(n, c) - mean[at(n, c)]) * rstd[at(n, c)]; }
  double grad(int64_t n, int64_t c) const { return dy.at(n, c) * gain(c); }  ///< of xhat
  double size(int64_t n, int64_t c) const {
    return (std::abs(x.at(n, c)) + std::abs(mean[at(n, c)]) + 1) * rstd[at(n, c)];
  }
  double dx(int64_t n, int64_t c) const {
    const auto width = static_cast<double>(shape.width);
    const size_t i = at(n, c);
    return rstd[i] * (grad(n, c) - sum_h[i] / width - xhat(n, c) * sum_hx[i] / width);
  }
  double dx_size(int64_t n, int64_t c) const {
    const size_t i = at(n, c);
    return rstd[i] * (std::abs(grad(n, c)) + (1 + size(n, c)) * sum_abs[i] / static_cast<double>(shape.width));
  }
  /// Sums over rows, and over the heads that share the gain.
  template <typename F>
  double over_gain(int64_t g, const F& f) const {
    double sum = 0;
    for (int64_t c = 0; c < shape.heads * shape.width; ++c) {
      for (int64_t n = 0; gain_index(c) == g && n < shape.rows; ++n) sum += f(n, c);
    }
    return sum;
  }

  DType dtype;
  HeadShape shape;
  HeadNormOptions options;
  HostMatrix x, dy, gamma, beta;
  std::vector<double> mean, rstd, sum_h, sum_hx, sum_abs;
};

class NormHeads : public ::testing::TestWithParam<size_t> {
 protected:
  Outputs forward(Backend& backend, const HeadNormProblem& p) {
    const DType acc = accumulate_dtype(p.dtype);
    const int64_t statistics = p.shape.heads * p.shape.rows;
    Outputs out = {HostMatrix(p.dtype, p.shape.rows, p.shape.heads * p.shape.width, 2), HostMatrix(acc, 1, statistics),
                   HostMatrix(acc, 1, statistics)};
    if (!p.layernorm()) out[1].fill(0);
    backend.norm_forward({.x = p.x.view(),
                          .gamma = p.gamma.view(),
                          .beta = p.beta.view(),
                          .y = out[0].mut(),
                          .mean = p.layernorm() ? out[1].mut() : MutView{},
                          .rstd = out[2].mut(),
                          .variant = variant(p),
                          .heads = p.shape.heads},
                         backends_.stream());
    backends_.finish();
    return out;
  }
  static NormVariant variant(const HeadNormProblem& p) {
    return {.type = p.options.type, .eps = kHeadNormEps, .unit_offset = p.options.unit_offset};
  }
  void expect_forward(const HeadNormProblem& p, const Outputs& out) {
    expect_near(
        out[0], p.shape.width, [&](int64_t n, int64_t c) { return p.xhat(n, c) * p.gain(c) + p.bias(c); },
        [&](int64_t n, int64_t c) { return p.size(n, c) * std::abs(p.gain(c)) + std::abs(p.bias(c)); }, "y");
    expect_near(
        out[2], p.shape.width, [&](int64_t, int64_t i) { return p.rstd[static_cast<size_t>(i)]; },
        [&](int64_t, int64_t i) { return p.rstd[static_cast<size_t>(i)] * (2 + 10 * p.rstd[static_cast<size_t>(i)]); },
        "rstd");
    if (!p.layernorm()) return;
    expect_near(
        out[1], p.shape.width, [&](int64_t, int64_t i) { return p.mean[static_cast<size_t>(i)]; },
        [&](int64_t, int64_t i) { return 3 + std::abs(p.mean[static_cast<size_t>(i)]); }, "mean");
  }
  void check_backward(const HeadNormProblem& p, GradMode mode) {
    const DType acc = accumulate_dtype(p.dtype);
    const int64_t cols = p.shape.heads * p.shape.width, gains = p.options.own_gains ? cols : p.shape.width;
    const bool accumulate = mode == GradMode::kAccumulate;
    const HostMatrix before = random_matrix(p.dtype, p.shape.rows, cols, 5, 2);
    const HostMatrix before_gain = random_matrix(acc, 1, gains, 6);
    const auto run = [&](Backend& backend) {
      const Outputs statistics = forward(backend, p);
      Outputs out = {HostMatrix(p.dtype, p.shape.rows, cols, 2), HostMatrix(acc, 1, gains), HostMatrix(acc, 1, gains)};
      if (accumulate) out = {before, before_gain, before_gain};
      backend.norm_backward({.dy = p.dy.view(),
                             .x = p.x.view(),
                             .gamma = p.gamma.view(),
                             .mean = p.layernorm() ? statistics[1].view() : ConstView{},
                             .rstd = statistics[2].view(),
                             .dx = out[0].mut(),
                             .dgamma = p.options.gamma ? out[1].mut() : MutView{},
                             .dbeta = p.options.beta ? out[2].mut() : MutView{},
                             .dx_mode = mode,
                             .param_mode = mode,
                             .variant = variant(p),
                             .heads = p.shape.heads},
                            backends_.stream());
      backends_.finish();  // before the statistics go
      return out;
    };
    backends_.each(run, [&](const Outputs& out) {
      const auto old = [&](const HostMatrix& m, int64_t r, int64_t c) { return accumulate ? m.at(r, c) : 0.0; };
      expect_near(
          out[0], p.shape.width, [&](int64_t n, int64_t c) { return old(before, n, c) + p.dx(n, c); },
          [&](int64_t n, int64_t c) { return std::abs(old(before, n, c)) + p.dx_size(n, c); }, "dx");
      const int64_t length = p.shape.rows * p.shape.heads + p.shape.width;
      const auto size = [&](int64_t r, int64_t g) {
        return std::abs(old(before_gain, r, g)) +
               p.over_gain(g, [&](int64_t n, int64_t c) { return std::abs(p.dy.at(n, c)) * (1 + p.size(n, c)); });
      };
      if (p.options.gamma) {
        expect_near(
            out[1], length,
            [&](int64_t r, int64_t g) {
              return old(before_gain, r, g) +
                     p.over_gain(g, [&](int64_t n, int64_t c) { return p.dy.at(n, c) * p.xhat(n, c); });
            },
            size, "dgamma");
      }
      if (p.options.beta) {
        expect_near(
            out[2], length,
            [&](int64_t r, int64_t g) {
              return old(before_gain, r, g) + p.over_gain(g, [&](int64_t n, int64_t c) { return p.dy.at(n, c); });
            },
            size, "dbeta");
      }
    });
  }

  EveryBackend backends_;
};

TEST_P(NormHeads, EachHeadIsARowOfItsOwn) {
  const HeadNormOptions& options = kHeadNormOptions[GetParam()];
  for (const DType dtype : kStorageDTypes) {
    for (const HeadShape& shape : kHeadShapes) {
      SCOPED_TRACE(str_cat(name_of(dtype), " ", shape.rows, " rows of ", shape.heads, " heads of ", shape.width));
      const HeadNormProblem p(dtype, shape, options);
      backends_.each([&](Backend& backend) { return forward(backend, p); },
                     [&](const Outputs& out) { expect_forward(p, out); });
      check_backward(p, GradMode::kOverwrite);
      check_backward(p, GradMode::kAccumulate);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Options, NormHeads, ::testing::Range<size_t>(0, kHeadNormOptions.size()),
                         [](const auto& at) { return str_cat("Number", at.param); });

class NormSums : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

TEST_F(NormSums, StatisticsAreThoseOfTheSums) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t rows : {1, 7, 33, 1500}) {
      HostMatrix sum = random_matrix(dtype, 1, rows, 1, 0, 3.0, 5.0), squares = random_matrix(dtype, 1, rows, 2);
      for (int64_t n = 0; n < rows; ++n) squares.set(0, n, std::abs(squares.at(0, n)));
      constexpr int64_t kTotal = 37;
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {sum, squares, HostMatrix(dtype, 1, rows), HostMatrix(dtype, 1, rows)};
            backend.norm_statistics({.sum = out[0].view(),
                                     .sum_squares = out[1].view(),
                                     .mean = out[0].mut(),
                                     .rstd = out[1].mut(),
                                     .c_total = kTotal,
                                     .eps = kHeadNormEps},
                                    backends_.stream());
            backend.norm_statistics({.sum = {},
                                     .sum_squares = squares.view(),
                                     .mean = {},
                                     .rstd = out[3].mut(),
                                     .c_total = kTotal,
                                     .eps = kHeadNormEps},
                                    backends_.stream());
            out[2].fill(0);
            return out;
          },
          [&](const Outputs& out) {
            const auto rstd = [&](int64_t r, int64_t n) {
              return 1 / std::sqrt(squares.at(r, n) / kTotal + kHeadNormEps);
            };
            expect_near(
                out[0], 1, [&](int64_t r, int64_t n) { return sum.at(r, n) / kTotal; },
                [&](int64_t r, int64_t n) { return std::abs(sum.at(r, n)) / kTotal; }, "mean");
            for (const size_t i : {1, 3}) expect_near(out[i], 1, rstd, rstd, "rstd");
          });
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ashlar::test
