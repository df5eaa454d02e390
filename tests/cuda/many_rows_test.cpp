// More rows than blocks start with: kernels whose blocks go on from row to row, or from part to part, must reach every
// one once. Small numbers, so that results are exact.

#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

class ManyRowsTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
  Backend& backend_ = backends_.one();

  static HostMatrix small_integers(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0) {
    HostMatrix m(dtype, rows, cols, padding);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) m.set(r, c, static_cast<double>((r * 7 + c * 3) % 17 - 8));
    }
    return m;
  }
};

TEST_F(ManyRowsTest, ElementwiseWithAndWithoutGaps) {
  for (const int64_t padding : {0, 16}) {
    const HostMatrix x = small_integers(DType::kBFloat16, 2200, 4096, padding);
    HostMatrix y(DType::kBFloat16, 2200, 4096, padding);
    backend_.activation_forward({.x = x.view(), .up = {}, .y = y.mut(), .kind = Activation::kRelu}, backends_.stream());
    backends_.finish();
    EXPECT_TRUE(y.padding_untouched());
    for (int64_t i = 0; i < 2200 * 4096; ++i) ASSERT_EQ(y.at(i), std::max(x.at(i), 0.0)) << i;
  }
}

TEST_F(ManyRowsTest, NarrowRowsOfNorms) {
  constexpr int64_t kRows = 150001;
  const HostMatrix x = small_integers(DType::kFloat32, kRows, 1);
  HostMatrix y(DType::kFloat32, kRows, 1), rstd(DType::kFloat32, 1, kRows), dx(DType::kFloat32, kRows, 1);
  HostMatrix mean(DType::kFloat32, 1, kRows), dgamma(DType::kFloat32, 1, 1), dbeta(DType::kFloat32, 1, 1);
  HostMatrix gamma(DType::kFloat32, 1, 1);
  gamma.set(0, 2);
  // One column: xhat = 0 by layernorm, so y = beta = 0 and dx = 0; dbeta is the sum of dy.
  const NormVariant variant{.type = NormType::kLayerNorm, .eps = 0.25};
  backend_.norm_forward({.x = x.view(),
                         .gamma = gamma.view(),
                         .beta = {},
                         .y = y.mut(),
                         .mean = mean.mut(),
                         .rstd = rstd.mut(),
                         .variant = variant},
                        backends_.stream());
  backend_.norm_backward({.dy = x.view(),
                          .x = x.view(),
                          .gamma = gamma.view(),
                          .mean = mean.view(),
                          .rstd = rstd.view(),
                          .dx = dx.mut(),
                          .dgamma = dgamma.mut(),
                          .dbeta = dbeta.mut(),
                          .param_mode = GradMode::kOverwrite,
                          .variant = variant},
                         backends_.stream());
  backends_.finish();
  double sum = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    sum += x.at(n);
    ASSERT_EQ(mean.at(n), x.at(n)) << n;
    ASSERT_EQ(rstd.at(n), 2) << n;
    ASSERT_EQ(y.at(n), 0) << n;
    ASSERT_EQ(dx.at(n), 0) << n;
  }
  EXPECT_EQ(dbeta.at(0), sum);
  EXPECT_EQ(dgamma.at(0), 0);
}

/// The split form with mean 0 and rstd 1/2, and the fused backward where every row has its own part in dgamma.
TEST_F(ManyRowsTest, WideRowsOfNorms) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    constexpr int64_t kRows = 1200, kCols = 1024;
    const HostMatrix x = small_integers(dtype, kRows, kCols);
    HostMatrix rstd(DType::kFloat32, 1, kRows), y(dtype, kRows, kCols), sum(DType::kFloat32, 1, kRows);
    rstd.fill(0.5);
    HostMatrix squares(DType::kFloat32, 1, kRows), dgamma(DType::kFloat32, 1, kCols), dbeta(DType::kFloat32, 1, kCols);
    HostMatrix dx(dtype, kRows, kCols), split_dgamma = dgamma, split_dbeta = dbeta, zero = rstd;
    zero.fill(0);
    backend_.norm_row_stats({.x = x.view(), .center = {}, .sum = sum.mut(), .sum_squares = squares.mut()},
                            backends_.stream());
    backend_.norm_apply({.x = x.view(), .gamma = {}, .beta = {}, .mean = {}, .rstd = rstd.view(), .y = y.mut()},
                        backends_.stream());
    backend_.norm_backward({.dy = x.view(),
                            .x = x.view(),
                            .gamma = {},
                            .mean = {},
                            .rstd = rstd.view(),
                            .dx = dx.mut(),
                            .dgamma = dgamma.mut(),
                            .dbeta = dbeta.mut(),
                            .param_mode = GradMode::kOverwrite,
                            .variant = {.type = NormType::kRmsNorm}},
                           backends_.stream());
    HostMatrix split_dx(dtype, kRows, kCols);
    backend_.norm_backward_apply({.dy = x.view(),
                                  .x = x.view(),
                                  .gamma = {},
                                  .mean = {},
                                  .rstd = rstd.view(),
                                  .sum_h = {},
                                  .sum_hx = zero.view(),
                                  .c_total = kCols,
                                  .dx = split_dx.mut(),
                                  .dgamma = split_dgamma.mut(),
                                  .dbeta = split_dbeta.mut(),
                                  .param_mode = GradMode::kOverwrite},
                                 backends_.stream());
    backends_.finish();
    std::vector<double> column(kCols), column_squares(kCols);
    for (int64_t n = 0; n < kRows; ++n) {
      double row = 0, row_squares = 0;
      for (int64_t c = 0; c < kCols; ++c) {
        const double v = x.at(n, c);
        row += v;
        row_squares += v * v;
        column[static_cast<size_t>(c)] += v;
        column_squares[static_cast<size_t>(c)] += v * v / 2;
        ASSERT_EQ(y.at(n, c), v / 2) << n << " " << c;
        ASSERT_EQ(split_dx.at(n, c), v / 2) << n << " " << c;
      }
      ASSERT_EQ(sum.at(n), row) << n;
      ASSERT_EQ(squares.at(n), row_squares) << n;
      for (int64_t c = 0; c < kCols; ++c) {
        const double v = x.at(n, c), expected = 0.5 * (v - v / 2 * (row_squares / 2) / kCols);
        ASSERT_NEAR(dx.at(n, c), expected, tolerance(dtype, 8, std::abs(v) * 4)) << n << " " << c;
      }
    }
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(dgamma.at(c), column_squares[static_cast<size_t>(c)]) << c;
      ASSERT_EQ(dbeta.at(c), column[static_cast<size_t>(c)]) << c;
      ASSERT_EQ(split_dgamma.at(c), dgamma.at(c)) << c;
      ASSERT_EQ(split_dbeta.at(c), dbeta.at(c)) << c;
    }
  }
}

TEST_F(ManyRowsTest, RotationByAQuarterTurn) {
  constexpr int64_t kRows = 600000;
  HostMatrix x = small_integers(DType::kFloat32, kRows, 2), cos(DType::kFloat32, 2, 1), sin(DType::kFloat32, 2, 1);
  cos.set(0, 1), cos.set(1, 0), sin.set(0, 0), sin.set(1, 1);
  const HostMatrix before = x;
  Integers positions(kRows);
  for (int64_t n = 0; n < kRows; ++n) positions[static_cast<size_t>(n)] = static_cast<int32_t>(n % 3 == 0);
  backend_.rope({.x = x.view(),
                 .y = x.mut(),
                 .positions = view_of(positions),
                 .cos = cos.view(),
                 .sin = sin.view(),
                 .heads = 1,
                 .rotated_heads = 1,
                 .head_dim = 2,
                 .dims = 2},
                backends_.stream());
  backends_.finish();
  for (int64_t n = 0; n < kRows; ++n) {
    const bool turned = n % 3 == 0;
    ASSERT_EQ(x.at(n, 0), turned ? -before.at(n, 1) : before.at(n, 0)) << n;
    ASSERT_EQ(x.at(n, 1), turned ? before.at(n, 0) : before.at(n, 1)) << n;
  }
}

TEST_F(ManyRowsTest, LossOfEqualLogits) {
  constexpr int64_t kRows = 9001, kCols = 64;
  HostMatrix logits(DType::kBFloat16, kRows, kCols), max(DType::kFloat32, 1, kRows), sum = max, target = max;
  Integers targets(kRows);
  for (int64_t n = 0; n < kRows; ++n) {
    for (int64_t c = 0; c < kCols; ++c) logits.set(n, c, static_cast<double>(n % 9));
    targets[static_cast<size_t>(n)] = static_cast<int32_t>(n % 3) - 1;
  }
  const LossShape shape{.targets = view_of(targets), .valid_cols = kCols};
  DeviceStruct<LossStats> stats;
  const DeviceStruct<StepScalars> scalars({.inv_valid_tokens = 0.25});
  backend_.loss_row_stats({.logits = logits.view(),
                           .row_max = max.mut(),
                           .row_sum = sum.mut(),
                           .target_logit = target.mut(),
                           .shape = shape},
                          backends_.stream());
  backend_.loss_reduce({.row_max = max.view(),
                        .row_sum = sum.view(),
                        .target_logit = target.view(),
                        .shape = shape,
                        .stats = stats.mut()},
                       backends_.stream());
  backend_.loss_backward({.logits = logits.view(),
                          .row_max = max.view(),
                          .row_sum = sum.view(),
                          .dlogits = logits.mut(),
                          .shape = shape,
                          .scalars = scalars.view()},
                         backends_.stream());
  backends_.finish();
  int64_t valid = 0;
  for (int64_t n = 0; n < kRows; ++n) {
    const int32_t t = targets[static_cast<size_t>(n)];
    ASSERT_EQ(max.at(n), static_cast<double>(n % 9)) << n;
    ASSERT_EQ(sum.at(n), kCols) << n;
    valid += t >= 0 ? 1 : 0;
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(logits.at(n, c), t < 0 ? 0 : c == t ? -0.25 * 63 / 64 : 0.25 / 64) << n;
    }
  }
  EXPECT_EQ(stats->valid, valid);
  EXPECT_NEAR(stats->loss, static_cast<double>(valid) * std::log(64.0), 1e-9 * static_cast<double>(valid));
}

TEST_F(ManyRowsTest, PartsOfAnUpdateAndChunksOfANorm) {
  // Lion moves each weight by one rate.
  constexpr int64_t kSize = 9000003;
  HostMatrix grad = small_integers(DType::kFloat32, 1, kSize), master(DType::kFloat32, 1, kSize), m = master;
  HostMatrix weights(DType::kBFloat16, 1, kSize);
  master.fill(1), m.fill(0);
  constexpr int64_t kFirst = 4096 * 1000 + 5;
  const std::array<UpdateSegment, 2> table = {UpdateSegment{.size = kFirst},
                                              {.flat_begin = kFirst, .packed_begin = kFirst, .size = kSize - kFirst}};
  const DeviceStruct<std::array<UpdateSegment, 2>> segments(table);
  const DeviceStruct<StepScalars> scalars({.lr = 0.5});
  const DeviceStruct<ClipState> clip;
  backend_.lion({.update = {.grad = grad.view(),
                            .master = master.mut(),
                            .weights = weights.mut(),
                            .segments = segments.view(),
                            .scalars = scalars.view(),
                            .clip = clip.view()},
                 .m = m.mut(),
                 .beta1 = 0.5,
                 .beta2 = 0.5},
                backends_.stream());
  backends_.finish();
  for (int64_t i = 0; i < kSize; ++i) {
    const double g = grad.at(0, i), w = g > 0 ? 0.5 : g < 0 ? 1.5 : 1;
    ASSERT_EQ(master.at(0, i), w) << i;
    ASSERT_EQ(weights.at(0, i), w) << i;
    ASSERT_EQ(m.at(0, i), g / 2) << i;
  }
  // Segments of one element each.
  constexpr int64_t kSegments = 18000;
  DeviceVector<SquaresSegment> squares(kSegments);
  for (int64_t i = 0; i < kSegments; ++i) {
    squares[static_cast<size_t>(i)] = {.begin = 3 * i, .size = 1, .first = i, .slot = i / 9000, .first_chunk = i};
  }
  HostMatrix partials(DType::kFloat64, 1, kSegments), sums(DType::kFloat64, 1, 2);
  const auto bytes = static_cast<int64_t>(sizeof(SquaresSegment)) * kSegments;
  backend_.sum_squares({.x = grad.view(),
                        .segments = {squares.data(), DType::kUInt8, 1, bytes, bytes},
                        .partials = partials.mut(),
                        .sums = sums.mut()},
                       backends_.stream());
  backends_.finish();
  double expected[2] = {0, 0};
  for (int64_t i = 0; i < kSegments; ++i) expected[i / 9000] += grad.at(0, 3 * i) * grad.at(0, 3 * i);
  EXPECT_EQ(sums.at(0), expected[0]);
  EXPECT_EQ(sums.at(1), expected[1]);
}

}  // namespace
}  // namespace ashlar::test
