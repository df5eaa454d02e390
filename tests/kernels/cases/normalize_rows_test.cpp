#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

class NormalizeRowsTest : public ::testing::Test {
 protected:
  EveryBackend backends_;
};

double dot(const HostMatrix& a, const HostMatrix& b, int64_t row) {
  double sum = 0;
  for (int64_t c = 0; c < a.cols(); ++c) sum += a.at(row, c) * b.at(row, c);
  return sum;
}

/// Rows of ordinary length, and one shorter than counts.
HostMatrix make_rows(DType dtype, const Shape& s) {
  HostMatrix w = random_matrix(dtype, s.rows, s.cols, 1, 2, 0.25, 0.5);
  for (int64_t c = 0; c < s.cols; ++c) w.set(s.rows - 1, c, s.rows > 1 ? 1e-15 : w.at(s.rows - 1, c));
  return w;
}

double inverse_of(const HostMatrix& w, int64_t row) { return 1 / std::max(std::sqrt(dot(w, w, row)), kShortestRow); }

std::vector<double> inverses_of(const HostMatrix& w) {
  std::vector<double> inverses;
  for (int64_t row = 0; row < w.rows(); ++row) inverses.push_back(inverse_of(w, row));
  return inverses;
}

/// What all elements of a row's gradient have in common.
struct RowGradient {
  double inverse, along, terms;
};

std::vector<RowGradient> row_gradients(const HostMatrix& w, const HostMatrix& dy) {
  std::vector<RowGradient> rows;
  for (int64_t r = 0; r < w.rows(); ++r) {
    const double inverse = inverse_of(w, r);
    const bool counts = std::sqrt(dot(w, w, r)) > kShortestRow;
    double terms = 0;  // the rounding of a product is to the size of its terms
    for (int64_t c = 0; c < w.cols(); ++c) terms += std::abs(w.at(r, c) * dy.at(r, c));
    rows.push_back({inverse, counts ? inverse * inverse * dot(w, dy, r) : 0, inverse * inverse * terms});
  }
  return rows;
}

TEST_F(NormalizeRowsTest, IsTheFormula) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "]"));
      const HostMatrix w = make_rows(dtype, s);
      const std::vector<double> inverses = inverses_of(w);
      const auto inverse_at = [&](int64_t row) { return inverses.at(static_cast<size_t>(row)); };
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {HostMatrix(dtype, s.rows, s.cols, 3), HostMatrix(accumulate_dtype(dtype), 1, s.rows)};
            backend.normalize_rows({.w = w.view(), .y = out[0].mut(), .inverse = out[1].mut()}, backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            expect_near(
                out[0], s.cols, [&](int64_t r, int64_t c) { return w.at(r, c) * inverse_at(r); },
                [&](int64_t r, int64_t c) { return std::abs(w.at(r, c)) * inverse_at(r); }, "y");
            expect_near(
                out[1], s.cols, [&](int64_t, int64_t v) { return inverse_at(v); },
                [&](int64_t, int64_t v) { return inverse_at(v); }, "inverse");
          });
    }
  }
}

TEST_F(NormalizeRowsTest, BackwardIsTheFormulaInEveryMode) {
  for (const DType dtype : kStorageDTypes) {
    const DType acc = accumulate_dtype(dtype);
    for (const Shape s : kShapes) {
      const HostMatrix w = make_rows(dtype, s), dy = random_matrix(acc, s.rows, s.cols, 2, 1);
      const HostMatrix before = random_matrix(acc, s.rows, s.cols, 3);
      HostMatrix inverse(acc, 1, s.rows);
      const std::vector<RowGradient> rows = row_gradients(w, dy);
      for (int64_t v = 0; v < s.rows; ++v) inverse.set(v, rows.at(static_cast<size_t>(v)).inverse);
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] ", accumulate));
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {before};
              backend.normalize_rows_backward({.dy = dy.view(),
                                               .w = w.view(),
                                               .inverse = inverse.view(),
                                               .dw = out[0].mut(),
                                               .mode = accumulate ? GradMode::kAccumulate : GradMode::kOverwrite},
                                              backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              const auto old = [&](int64_t r, int64_t c) { return accumulate ? before.at(r, c) : 0; };
              expect_near(
                  out[0], s.cols,
                  [&](int64_t r, int64_t c) {
                    const RowGradient& row = rows.at(static_cast<size_t>(r));
                    return old(r, c) + row.inverse * (dy.at(r, c) - w.at(r, c) * row.along);
                  },
                  [&](int64_t r, int64_t c) {
                    const RowGradient& row = rows.at(static_cast<size_t>(r));
                    return std::abs(old(r, c)) +
                           row.inverse * (std::abs(dy.at(r, c)) + std::abs(w.at(r, c)) * row.terms) * 2;
                  },
                  "dw");
            });
      }
    }
  }
}

// Against central differences of sum(dy * y): the gradient is across the row, never along it.
TEST_F(NormalizeRowsTest, BackwardIsTheDerivativeOfForward) {
  constexpr double kStep = 1e-6;
  constexpr int64_t kRows = 2, kCols = 5;
  HostMatrix w = random_matrix(DType::kFloat64, kRows, kCols, 1);
  const HostMatrix dy = random_matrix(DType::kFloat64, kRows, kCols, 2);
  HostMatrix y(DType::kFloat64, kRows, kCols), inverse(DType::kFloat64, 1, kRows), dw(DType::kFloat64, kRows, kCols);
  const auto value = [&] {
    backends_.one().normalize_rows({.w = w.view(), .y = y.mut(), .inverse = inverse.mut()}, backends_.stream());
    backends_.finish();
    return dot(dy, y, 0) + dot(dy, y, 1);
  };
  value();
  backends_.one().normalize_rows_backward({.dy = dy.view(), .w = w.view(), .inverse = inverse.view(), .dw = dw.mut()},
                                          backends_.stream());
  backends_.finish();
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const double at = w.at(i);
    w.set(i, at + kStep);
    const double above = value();
    w.set(i, at - kStep);
    const double below = value();
    w.set(i, at);
    EXPECT_NEAR(dw.at(i), (above - below) / (2 * kStep), 1e-8);
  }
  for (int64_t r = 0; r < kRows; ++r) EXPECT_NEAR(dot(dw, w, r), 0, 1e-12);
}

}  // namespace
}  // namespace ashlar::test
