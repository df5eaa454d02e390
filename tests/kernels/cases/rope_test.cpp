#include <gtest/gtest.h>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr int64_t kPositions = 50;

struct Layout {
  int64_t rows, heads, rotated_heads, head_dim, dims;
};

constexpr std::array<Layout, 8> kLayouts = {Layout{1, 1, 1, 2, 2}, {3, 2, 1, 4, 4},    {5, 3, 2, 8, 6},
                                            {33, 4, 3, 64, 64},    {31, 5, 5, 36, 18}, {7, 2, 0, 8, 8},
                                            {70, 9, 6, 80, 32},    {9, 3, 2, 8, 0}};

class RopeTest : public ::testing::Test {
 protected:
  RopeTest() : positions_(128) {
    for (size_t n = 0; n < positions_.size(); ++n) positions_[n] = static_cast<int32_t>((n * 17 + 3) % kPositions);
  }

  /// cos and sin of arbitrary angles, in the accumulate type of `dtype`.
  std::array<HostMatrix, 2> tables(DType dtype, int64_t dims) const {
    std::array<HostMatrix, 2> t = {HostMatrix(accumulate_dtype(dtype), kPositions, dims / 2, 1),
                                   HostMatrix(accumulate_dtype(dtype), kPositions, dims / 2, 2)};
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t m = 0; m < dims / 2; ++m) {
        const double angle =
            static_cast<double>(p) * std::pow(100.0, -2.0 * static_cast<double>(m) / static_cast<double>(dims));
        t[0].set(p, m, std::cos(angle));
        t[1].set(p, m, std::sin(angle));
      }
    }
    return t;
  }

  Rope args(const HostMatrix& x, const std::array<HostMatrix, 2>& t, const Layout& l, RopeStyle style) const {
    return {.x = x.view(),
            .y = {},
            .positions = flat_range(view_of(positions_), 0, l.rows),
            .cos = t[0].view(),
            .sin = t[1].view(),
            .heads = l.heads,
            .rotated_heads = l.rotated_heads,
            .head_dim = l.head_dim,
            .dims = l.dims,
            .style = style};
  }

  EveryBackend backends_;
  Integers positions_;
};

TEST_F(RopeTest, IsTheRotationInEveryStyleDirectionAndMode) {
  for (const DType dtype : kStorageDTypes) {
    for (const Layout& l : kLayouts) {
      const int64_t cols = l.heads * l.head_dim;
      const HostMatrix x = random_matrix(dtype, l.rows, cols, 1, 3);
      const HostMatrix before = random_matrix(dtype, l.rows, cols, 2, 5);
      const auto t = tables(dtype, l.dims);
      for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
        for (const bool inverse : {false, true}) {
          for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
            SCOPED_TRACE(str_cat(name_of(dtype), " rows ", l.rows, " heads ", l.heads, " dims ", l.dims, " style ",
                                 static_cast<int>(style), " inverse ", inverse, " mode ", static_cast<int>(mode)));
            HostMatrix expected(DType::kFloat64, l.rows, cols);
            HostMatrix size(DType::kFloat64, l.rows, cols);
            for (int64_t n = 0; n < l.rows; ++n) {
              for (int64_t c = 0; c < cols; ++c) {
                const int64_t head = c / l.head_dim;
                const int64_t i = c % l.head_dim;
                double value = x.at(n, c);
                double magnitude = std::abs(value);
                if (head < l.rotated_heads && i < l.dims) {
                  const bool half = style == RopeStyle::kHalf;
                  const int64_t m = half ? i % (l.dims / 2) : i / 2;
                  const bool second = half ? i >= l.dims / 2 : i % 2 == 1;
                  const int64_t a = head * l.head_dim + (half ? m : 2 * m);
                  const int64_t b = head * l.head_dim + (half ? m + l.dims / 2 : 2 * m + 1);
                  const double cos = t[0].at(positions_[static_cast<size_t>(n)], m);
                  const double sin = t[1].at(positions_[static_cast<size_t>(n)], m) * (inverse ? -1 : 1);
                  value = second ? x.at(n, b) * cos + x.at(n, a) * sin : x.at(n, a) * cos - x.at(n, b) * sin;
                  magnitude = std::abs(x.at(n, a)) + std::abs(x.at(n, b));
                }
                const double old = mode == GradMode::kAccumulate ? before.at(n, c) : 0;
                expected.set(n, c, old + value);
                size.set(n, c, std::abs(old) + magnitude);
              }
            }
            const HostMatrix start = mode == GradMode::kAccumulate ? before : HostMatrix(dtype, l.rows, cols, 5);
            backends_.each(
                [&](Backend& backend) {
                  Outputs out = {start};
                  Rope rope = args(x, t, l, style);
                  rope.y = out[0].mut();
                  rope.inverse = inverse;
                  rope.mode = mode;
                  backend.rope(rope, backends_.stream());
                  return out;
                },
                [&](const Outputs& out) {
                  if (mode == GradMode::kSkip) {
                    EXPECT_TRUE(out[0] == start);
                    return;
                  }
                  expect_near(
                      out[0], 1, [&](int64_t r, int64_t c) { return expected.at(r, c); },
                      [&](int64_t r, int64_t c) { return size.at(r, c); }, "y");
                });
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(RopeTest, HalfEqualsInterleavedAfterThePermutationToTheBit) {
  for (const DType dtype : kStorageDTypes) {
    const Layout l{33, 4, 3, 40, 36};
    const auto t = tables(dtype, l.dims);
    const HostMatrix x = random_matrix(dtype, l.rows, l.heads * l.head_dim, 1);
    const auto permuted = [&](const HostMatrix& from) {  // dims (m, m + dims/2) -> (2m, 2m+1) in each rotated head
      HostMatrix to = from;
      for (int64_t n = 0; n < l.rows; ++n) {
        for (int64_t h = 0; h < l.rotated_heads; ++h) {
          for (int64_t m = 0; m < l.dims / 2; ++m) {
            to.set(n, h * l.head_dim + 2 * m, from.at(n, h * l.head_dim + m));
            to.set(n, h * l.head_dim + 2 * m + 1, from.at(n, h * l.head_dim + m + l.dims / 2));
          }
        }
      }
      return to;
    };
    HostMatrix half(dtype, l.rows, l.heads * l.head_dim);
    HostMatrix interleaved(dtype, l.rows, l.heads * l.head_dim);
    Rope rope = args(x, t, l, RopeStyle::kHalf);
    rope.y = half.mut();
    backends_.one().rope(rope, backends_.stream());
    backends_.finish();
    const HostMatrix x_permuted = permuted(x);
    rope = args(x_permuted, t, l, RopeStyle::kInterleaved);
    rope.y = interleaved.mut();
    backends_.one().rope(rope, backends_.stream());
    backends_.finish();
    EXPECT_TRUE(permuted(half) == interleaved) << name_of(dtype);
  }
}

TEST_F(RopeTest, InverseUndoesForwardAndInPlaceEqualsApart) {
  const Layout l{33, 4, 4, 32, 20};
  for (const RopeStyle style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
    const HostMatrix x = random_matrix(DType::kFloat64, l.rows, l.heads * l.head_dim, 1);
    const auto t = tables(DType::kFloat64, l.dims);
    HostMatrix y(DType::kFloat64, l.rows, l.heads * l.head_dim);
    Rope rope = args(x, t, l, style);
    rope.y = y.mut();
    backends_.one().rope(rope, backends_.stream());
    backends_.finish();
    HostMatrix in_place = x;
    rope = args(in_place, t, l, style);
    rope.y = in_place.mut();
    backends_.one().rope(rope, backends_.stream());
    backends_.finish();
    EXPECT_TRUE(in_place == y);
    rope.inverse = true;
    backends_.one().rope(rope, backends_.stream());
    backends_.finish();
    for (int64_t i = 0; i < l.rows * l.heads * l.head_dim; ++i) ASSERT_NEAR(in_place.at(i), x.at(i), 1e-14);
  }
}

TEST_F(RopeTest, TooWideHeadsAreNamed) {
  const Layout l{1, 1, 1, 1026, 1026};
  const auto t = tables(DType::kFloat32, l.dims);
  HostMatrix x = random_matrix(DType::kFloat32, 1, 1026, 1);
  Rope rope = args(x, t, l, RopeStyle::kHalf);
  rope.y = x.mut();
  const auto call = [&] {
    backends_.one().rope(rope, backends_.stream());
    backends_.finish();
  };
  EXPECT_THROW(call(), Error);
}

}  // namespace
}  // namespace ashlar::test
