#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr double kResidualNormEps = 1e-3;

class ResidualNormTest : public ::testing::Test {
 protected:
  DropoutArgs dropout(double p) const {
    return {.p = p,
            .seed = 7,
            .rng_stream = 9,
            .scalars = scalars_.view(),
            .first_sample = 3,
            .sequence_length = 64,
            .row0 = 5};
  }

  EveryBackend backends_;
  DeviceStruct<StepScalars> scalars_{{.philox_step = 77}};
};

/// And rows that no block holds.
constexpr auto kShapesAndWide = [] {
  std::array<Shape, kShapes.size() + 1> shapes{};
  std::copy(kShapes.begin(), kShapes.end(), shapes.begin());
  shapes.back() = {2, 8208};
  return shapes;
}();

// The sum, and the norm of the sum as it was stored: by the formulas, and with the bits of the two calls.
TEST_F(ResidualNormTest, IsTheSumAndItsNormWithTheRoundingsOfBoth) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapesAndWide) {
      for (const NormType type : {NormType::kLayerNorm, NormType::kRmsNorm}) {
        for (const double p : {0.0, 0.25}) {
          SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] ", static_cast<int>(type), " p ", p));
          const bool centred = type == NormType::kLayerNorm;
          const double scale = centred ? 0.22 : 1;
          const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, 3, 0.5, 2.0);
          const HostMatrix delta = random_matrix(dtype, s.rows, s.cols, 2, 1);
          const HostMatrix gamma = random_matrix(dtype, 1, s.cols, 3, 0, 1.0, 0.3);
          const HostMatrix beta = random_matrix(dtype, 1, s.cols, 4);
          backends_.each(
              [&](Backend& backend) {
                const DType wide = accumulate_dtype(dtype);
                Outputs out;
                for (int i = 0; i < 2; ++i) {
                  out.emplace_back(dtype, s.rows, s.cols, 5);
                  out.emplace_back(dtype, s.rows, s.cols, 7);
                  out.emplace_back(wide, 1, s.rows);
                  out.emplace_back(wide, 1, s.rows);
                }
                const auto calls = [&](size_t first) {
                  const ResidualForward residual{.x = x.view(),
                                                 .delta = delta.view(),
                                                 .delta2 = {},
                                                 .y = out[first].mut(),
                                                 .dropout = dropout(p),
                                                 .dropout2 = {},
                                                 .scale = scale};
                  const NormForward norm{.x = out[first].view(),
                                         .gamma = gamma.view(),
                                         .beta = beta.view(),
                                         .y = out[first + 1].mut(),
                                         .mean = centred ? out[first + 2].mut() : MutView{},
                                         .rstd = out[first + 3].mut(),
                                         .variant = {.type = type, .eps = kResidualNormEps}};
                  return ResidualNormForward{.residual = residual, .norm = norm};
                };
                backend.residual_norm_forward(calls(0), backends_.stream());
                backend.residual_forward(calls(4).residual, backends_.stream());
                backend.norm_forward(calls(4).norm, backends_.stream());
                return out;
              },
              [&](const Outputs& out) {
                for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(out[i] == out[i + 4]) << "result " << i;
                if (p > 0) return;
                const HostMatrix& sum = out[0];
                expect_near(
                    sum, 1, [&](int64_t r, int64_t c) { return x.at(r, c) + scale * delta.at(r, c); },
                    [&](int64_t r, int64_t c) { return std::abs(x.at(r, c)) + std::abs(delta.at(r, c)); }, "stream");
                std::vector<double> mean, rstd;
                for (int64_t r = 0; r < s.rows; ++r) {
                  double m = 0, squares = 0;
                  for (int64_t c = 0; centred && c < s.cols; ++c) m += sum.at(r, c) / static_cast<double>(s.cols);
                  for (int64_t c = 0; c < s.cols; ++c) squares += (sum.at(r, c) - m) * (sum.at(r, c) - m);
                  mean.push_back(m);
                  rstd.push_back(1 / std::sqrt(squares / static_cast<double>(s.cols) + kResidualNormEps));
                }
                expect_near(
                    out[1], s.cols,
                    [&](int64_t r, int64_t c) { return (sum.at(r, c) - mean[r]) * rstd[r] * gamma.at(c) + beta.at(c); },
                    [&](int64_t r, int64_t c) {
                      return (std::abs(sum.at(r, c)) + std::abs(mean[r]) + 1) * rstd[r] * std::abs(gamma.at(c)) +
                             std::abs(beta.at(c));
                    },
                    "normed");
              });
        }
      }
    }
  }
}

TEST_F(ResidualNormTest, ReadsWhatItMade) {
  HostMatrix x = random_matrix(DType::kFloat32, 2, 3, 1), sum(DType::kFloat32, 2, 3), y(DType::kFloat32, 2, 3);
  HostMatrix rstd(DType::kFloat32, 1, 2);
  const ResidualForward residual{
      .x = x.view(), .delta = x.view(), .delta2 = {}, .y = sum.mut(), .dropout = {}, .dropout2 = {}};
  const NormForward norm{
      .x = x.view(), .gamma = {}, .beta = {}, .y = y.mut(), .mean = {}, .rstd = rstd.mut(), .variant = {}};
  EXPECT_THROW(backends_.one().residual_norm_forward({.residual = residual, .norm = norm}, backends_.stream()), Bug);
}

}  // namespace
}  // namespace ashlar::test
