#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

/// The rule of core/backend/common.h, one element at a time: what multiplies element (n, c).
double mask_of(const DropoutArgs& a, int64_t n, int64_t c, int64_t width) {
  if (!a.active()) return 1;
  const uint64_t e = (static_cast<uint64_t>(a.first_sample) * static_cast<uint64_t>(a.sequence_length) +
                      static_cast<uint64_t>(a.row0) + static_cast<uint64_t>(n)) *
                         static_cast<uint64_t>(width) +
                     static_cast<uint64_t>(c);
  return static_cast<double>(Philox::uniform(a.words(e / 4, a.step())[e % 4])) >= a.p ? 1 / (1 - a.p) : 0;
}

class ElementwiseTest : public ::testing::Test {
 protected:
  DropoutArgs dropout(double p, uint32_t rng_stream) const {
    return {.p = p,
            .seed = 0x123456789abcdef0ULL,
            .rng_stream = rng_stream,
            .scalars = scalars_.view(),
            .first_sample = 3000000000,
            .sequence_length = 1021,
            .row0 = 17};
  }

  DeviceStruct<StepScalars> scalars_{{.philox_step = 77}};
  EveryBackend backends_;
};

TEST_F(ElementwiseTest, ResidualForwardAddsBranchesAndDropsByTheIndexRule) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      const HostMatrix x = random_matrix(dtype, s.rows, s.cols, 1, 2);
      const HostMatrix delta = random_matrix(dtype, s.rows, s.cols, 2, 1);
      const HostMatrix delta2 = random_matrix(dtype, s.rows, s.cols, 3);
      for (const double p : {0.0, 0.1, 0.5}) {
        for (const int inputs : {0, 1, 2, 3}) {  // bit 0: x, bit 1: delta2
          SCOPED_TRACE(str_cat(name_of(dtype), " [", s.rows, ", ", s.cols, "] p ", p, " inputs ", inputs));
          const bool has_x = (inputs & 1) != 0;
          const bool has_delta2 = (inputs & 2) != 0;
          const DropoutArgs first = dropout(p, 5);
          const DropoutArgs second = dropout(p / 2, 6);
          const double scale = inputs == 2 ? 1 : 0.22;
          const auto terms = [&](int64_t n, int64_t c) {
            return std::array<double, 3>{has_x ? x.at(n, c) : 0, scale * delta.at(n, c) * mask_of(first, n, c, s.cols),
                                         has_delta2 ? scale * delta2.at(n, c) * mask_of(second, n, c, s.cols) : 0};
          };
          backends_.each(
              [&](Backend& backend) {
                Outputs out = {HostMatrix(dtype, s.rows, s.cols, 4), x};
                for (HostMatrix& y : out) {  // apart, and on top of x
                  const bool on_top = &y == &out[1];
                  backend.residual_forward({.x = has_x ? (on_top ? y.view() : x.view()) : ConstView{},
                                            .delta = delta.view(),
                                            .delta2 = has_delta2 ? delta2.view() : ConstView{},
                                            .y = y.mut(),
                                            .dropout = first,
                                            .dropout2 = second,
                                            .scale = scale},
                                           backends_.stream());
                }
                return out;
              },
              [&](const Outputs& out) {
                for (const HostMatrix& y : out) {
                  expect_near(
                      y, 1,
                      [&](int64_t n, int64_t c) {
                        const auto t = terms(n, c);
                        return t[0] + t[1] + t[2];
                      },
                      [&](int64_t n, int64_t c) {
                        const auto t = terms(n, c);
                        return std::abs(t[0]) + std::abs(t[1]) + std::abs(t[2]);
                      },
                      "y");
                }
              });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, DropoutBackwardUsesTheSameMaskInEveryMode) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      const HostMatrix dy = random_matrix(dtype, s.rows, s.cols, 1, 2);
      const HostMatrix before = random_matrix(dtype, s.rows, s.cols, 2, 1);
      for (const double p : {0.0, 0.3}) {
        for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
          const DropoutArgs args = dropout(p, 9);
          const double scale = s.cols % 2 == 0 ? 1 : 1.75;
          const HostMatrix start = mode == GradMode::kAccumulate ? before : HostMatrix(dtype, s.rows, s.cols, 1);
          backends_.each(
              [&](Backend& backend) {
                Outputs out = {start};
                backend.dropout_backward(
                    {.dy = dy.view(), .ddelta = out[0].mut(), .dropout = args, .scale = scale, .mode = mode},
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
                const auto value = [&](int64_t n, int64_t c) {
                  return scale * dy.at(n, c) * mask_of(args, n, c, s.cols);
                };
                expect_near(
                    out[0], 1, [&](int64_t n, int64_t c) { return old(n, c) + value(n, c); },
                    [&](int64_t n, int64_t c) { return std::abs(old(n, c)) + std::abs(value(n, c)); }, "ddelta");
              });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, DropoutKeepsTheRightShareAndDoesNotDependOnTheSplit) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kCols = 1001;
  HostMatrix ones(DType::kFloat32, kRows, kCols);
  ones.fill(1);
  DropoutArgs args = dropout(0.25, 1);
  args.sequence_length = 32;
  args.first_sample = 10;
  const auto run = [&](ConstView delta, MutView y, const DropoutArgs& a) {
    backends_.one().residual_forward({.x = {}, .delta = delta, .delta2 = {}, .y = y, .dropout = a, .dropout2 = {}},
                                     backends_.stream());
    backends_.finish();
  };
  HostMatrix whole(DType::kFloat32, kRows, kCols);
  run(ones.view(), whole.mut(), args);
  double kept = 0;
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    ASSERT_TRUE(whole.at(i) == 0 || whole.at(i) == static_cast<float>(1 / 0.75));
    kept += whole.at(i) != 0 ? 1 : 0;
  }
  const auto count = static_cast<double>(kRows * kCols);
  EXPECT_NEAR(kept / count, 0.75, 5 * std::sqrt(0.75 * 0.25 / count));
  // The second sample alone, as another rank would hold it.
  HostMatrix half(DType::kFloat32, 32, kCols);
  ConstView rows = ones.view();
  rows.rows = 32;
  DropoutArgs later = args;
  later.first_sample = 11;
  run(rows, half.mut(), later);
  for (int64_t i = 0; i < 32 * kCols; ++i) ASSERT_EQ(half.at(i), whole.at(32 * kCols + i));
  // The second half of the rows, as a rank holds it that shares the micro-batch.
  DropoutArgs shard = args;
  shard.row0 += 32;
  half.fill(0);
  run(rows, half.mut(), shard);
  for (int64_t i = 0; i < 32 * kCols; ++i) ASSERT_EQ(half.at(i), whole.at(32 * kCols + i));
  // Another step and another site drop others.
  for (const bool step : {true, false}) {
    const DeviceStruct<StepScalars> next({.philox_step = scalars_->philox_step + 1});
    DropoutArgs other = args;
    if (step) other.scalars = next.view();
    if (!step) other.rng_stream += 1;
    HostMatrix y(DType::kFloat32, kRows, kCols);
    run(ones.view(), y.mut(), other);
    EXPECT_FALSE(y == whole);
  }
}

TEST_F(ElementwiseTest, DropoutThresholdIsExact) {
  // p equal to one of the uniforms: that element is kept (>=), and with the next larger p dropped.
  DropoutArgs args = dropout(0.5, 4);
  args.first_sample = args.row0 = 0;
  HostMatrix one(DType::kFloat64, 1, 64);
  one.fill(1);
  for (int64_t i = 0; i < 64; ++i) {
    const double u = Philox::uniform(args.words(static_cast<uint64_t>(i) / 4, args.step())[static_cast<size_t>(i % 4)]);
    if (u == 0) continue;
    for (const bool keep : {true, false}) {
      args.p = keep ? u : std::nextafter(u, 1.0);
      HostMatrix y(DType::kFloat64, 1, 64);
      backends_.one().dropout_backward({.dy = one.view(), .ddelta = y.mut(), .dropout = args}, backends_.stream());
      backends_.finish();
      EXPECT_EQ(y.at(i) != 0, keep);
    }
  }
  args.p = 1;
  EXPECT_THROW(
      backends_.one().dropout_backward({.dy = one.view(), .ddelta = one.mut(), .dropout = args}, backends_.stream()),
      Error);
}

TEST_F(ElementwiseTest, CopyConvertsWithOneRounding) {
  for (const DType from : kStorageDTypes) {
    for (const DType to : kStorageDTypes) {
      for (const Shape s : kShapes) {
        for (const int64_t padding : {0, 2}) {
          const HostMatrix src = random_matrix(from, s.rows, s.cols, 1, padding);
          const HostMatrix before = random_matrix(to, s.rows, s.cols, 2, padding);
          for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
            const HostMatrix start = mode == GradMode::kAccumulate ? before : HostMatrix(to, s.rows, s.cols, padding);
            backends_.each(
                [&](Backend& backend) {
                  Outputs out = {start};
                  backend.copy({.src = src.view(), .dst = out[0].mut(), .mode = mode}, backends_.stream());
                  return out;
                },
                [&](const Outputs& out) {
                  if (mode == GradMode::kSkip) {
                    EXPECT_TRUE(out[0] == start);
                    return;
                  }
                  for (int64_t i = 0; i < s.rows * s.cols; ++i) {
                    const double exact = src.at(i) + (mode == GradMode::kAccumulate ? before.at(i) : 0);
                    // Half a unit in the last place of the result, plus the sum's own rounding when it is fp32.
                    const double wide = unit_roundoff(
                        from == DType::kFloat64 || to == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
                    ASSERT_NEAR(out[0].at(i), exact, std::abs(exact) * (unit_roundoff(to) + 2 * wide))
                        << name_of(from) << " to " << name_of(to);
                    if (mode == GradMode::kOverwrite && from == to) {
                      ASSERT_EQ(out[0].at(i), src.at(i));
                    }
                  }
                });
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(ElementwiseTest, CopyOfDoubleToBf16RoundsOnceAndKeepsSpecialValues) {
  // Just above the middle of two bf16 numbers, closer than fp32 can see: two roundings would go down to even.
  const double middle = 1 + 0x1p-8;
  const std::array<double, 8> values = {middle + 0x1p-40,
                                        middle - 0x1p-40,
                                        -middle - 0x1p-40,
                                        -middle + 0x1p-40,
                                        std::numeric_limits<double>::infinity(),
                                        std::nan(""),
                                        1e300,
                                        -0.0};
  HostMatrix src(DType::kFloat64, 1, 8);
  HostMatrix dst(DType::kBFloat16, 1, 8);
  for (int64_t i = 0; i < 8; ++i) src.set(i, values[static_cast<size_t>(i)]);
  backends_.one().copy({.src = src.view(), .dst = dst.mut()}, backends_.stream());
  backends_.finish();
  EXPECT_EQ(dst.at(0), 1 + 0x1p-7);
  EXPECT_EQ(dst.at(1), 1);
  EXPECT_EQ(dst.at(2), -1 - 0x1p-7);
  EXPECT_EQ(dst.at(3), -1);
  EXPECT_TRUE(std::isinf(dst.at(4)) && std::isnan(dst.at(5)) && std::isinf(dst.at(6)));
  EXPECT_TRUE(std::signbit(dst.at(7)));
  HostMatrix wide(DType::kFloat32, 1, 40);  // the vector store's rounding, including NaN, against the scalar type's
  for (int64_t i = 0; i < 40; ++i)
    wide.set(i, i == 7 ? std::nan("") : 1 + 0x1p-8 * static_cast<double>(i) + (i % 3 - 1) * 0x1p-20);
  wide.set(9, std::bit_cast<double>(~uint64_t{0} >> 1));  // NaN whose payload overflows where it is rounded
  HostMatrix narrow(DType::kBFloat16, 1, 40);
  backends_.one().copy({.src = wide.view(), .dst = narrow.mut()}, backends_.stream());
  backends_.finish();
  for (int64_t i = 0; i < 40; ++i) {
    if (i == 7 || i == 9) {
      EXPECT_TRUE(std::isnan(narrow.at(i))) << i;
    } else {
      EXPECT_EQ(narrow.at(i), rounded(DType::kBFloat16, wide.at(i)));
    }
  }
}

TEST_F(ElementwiseTest, FillSetsEveryElementOfEveryDType) {
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {HostMatrix(dtype, s.rows, s.cols, 3), HostMatrix(dtype, s.rows, s.cols)};
            for (HostMatrix& m : out) backend.fill({.dst = m.mut(), .value = 0.1}, backends_.stream());
            return out;
          },
          [&](const Outputs& out) {
            for (int64_t i = 0; i < s.rows * s.cols; ++i) {
              ASSERT_EQ(out[0].at(i), rounded(dtype, 0.1));
              ASSERT_EQ(out[1].at(i), rounded(dtype, 0.1));
            }
          });
    }
  }
  Integers ids(7, 5);
  backends_.one().fill({.dst = {ids.data(), DType::kInt32, 1, 7, 7}, .value = -3}, backends_.stream());
  backends_.finish();
  EXPECT_THAT(ids, ::testing::Each(-3));
  EXPECT_THROW(backends_.one().fill({.dst = {ids.data(), DType::kInt32, 1, 7, 7}, .value = 0.5}, backends_.stream()),
               Bug);
}

TEST_F(ElementwiseTest, SetStructWritesItsBytesAlone) {
  const ClipState value{.norm = 3, .clip_scale = 0.5, .skip = 7};
  const ClipState untouched{.norm = 1.1, .clip_scale = 1.1, .skip = -1};  // no byte is 0
  DeviceVector<ClipState> places(3, untouched);
  backends_.one().set_struct(SetStruct::of(value, {&places[1], DType::kUInt8, 1, sizeof(ClipState), sizeof(ClipState)}),
                             backends_.stream());
  backends_.finish();
  EXPECT_EQ(std::memcmp(&places[1], &value, sizeof(value)), 0);
  for (const size_t i : {0U, 2U}) EXPECT_EQ(std::memcmp(&places[i], &untouched, sizeof(untouched)), 0) << i;
}

TEST_F(ElementwiseTest, RandomFillIsThePhiloxFunctionOfTheGlobalIndex) {
  constexpr uint64_t kSeed = 0xfedcba9876543210ULL;
  const uint64_t rng_stream = hash64("layers.3.wq");
  for (const DType dtype : kStorageDTypes) {
    for (const Shape s : kShapes) {
      for (const int64_t extra : {0, 5}) {  // the whole width, and a slice of a wider tensor
        const int64_t width = s.cols + extra;
        const int64_t row0 = extra == 0 ? 7 : 70000;
        const int64_t col0 = extra / 2;
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {HostMatrix(dtype, s.rows, s.cols, extra)};
              backend.random_fill({.dst = out[0].mut(),
                                   .scale = 0.02,
                                   .seed = kSeed,
                                   .rng_stream = rng_stream,
                                   .row_begin = row0,
                                   .col_begin = col0,
                                   .global_cols = width},
                                  backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              for (int64_t r = 0; r < s.rows; ++r) {
                for (int64_t c = 0; c < s.cols; ++c) {
                  const auto index = static_cast<uint64_t>((row0 + r) * width + col0 + c);
                  const double expected = 0.02 * Philox::normal_at(kSeed, rng_stream, index);
                  // The same up to one rounding: fp64 to a few units, fp32 and bf16 to the neighbour at a tie.
                  const double allowed =
                      std::abs(expected) * (dtype == DType::kFloat64 ? 0x1p-49 : 2 * unit_roundoff(dtype)) + 1e-300;
                  ASSERT_NEAR(out[0].at(r, c), expected, allowed) << r << " " << c;
                }
              }
            });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(ElementwiseTest, NumbersBeyondTheCutAreDrawnAgain) {
  constexpr uint64_t kSeed = 0xfedcba9876543210ULL;
  const uint64_t rng_stream = hash64("layers.3.wq");
  for (const double trunc_sigma : {0.5, 1.0, 3.0}) {
    for (const DType dtype : kStorageDTypes) {
      const Shape s{3, 517};
      for (const int64_t extra : {0, 5}) {
        const int64_t width = s.cols + extra, row0 = extra == 0 ? 7 : 70000, col0 = extra / 2;
        backends_.each(
            [&](Backend& backend) {
              Outputs out = {HostMatrix(dtype, s.rows, s.cols, extra)};
              backend.random_fill({.dst = out[0].mut(),
                                   .scale = 0.02,
                                   .trunc_sigma = trunc_sigma,
                                   .seed = kSeed,
                                   .rng_stream = rng_stream,
                                   .row_begin = row0,
                                   .col_begin = col0,
                                   .global_cols = width},
                                  backends_.stream());
              return out;
            },
            [&](const Outputs& out) {
              int64_t kept = 0;
              for (int64_t r = 0; r < s.rows; ++r) {
                for (int64_t c = 0; c < s.cols; ++c) {
                  const auto index = static_cast<uint64_t>((row0 + r) * width + col0 + c);
                  const double first = Philox::normal_at(kSeed, rng_stream, index);
                  double expected = 0.02 * Philox::truncated_normal_at(kSeed, rng_stream, index, trunc_sigma);
                  if (std::abs(first) <= trunc_sigma) {
                    ++kept;
                    ASSERT_EQ(expected, 0.02 * first);
                  }
                  const double allowed =
                      std::abs(expected) * (dtype == DType::kFloat64 ? 0x1p-49 : 2 * unit_roundoff(dtype)) + 1e-300;
                  ASSERT_NEAR(out[0].at(r, c), expected, allowed) << r << " " << c;
                }
              }
              EXPECT_LT(kept, s.rows * s.cols) << "some lay beyond";
            });
        if (HasFatalFailure()) return;
      }
    }
  }
  HostMatrix m(DType::kFloat32, 1, 8);
  EXPECT_THROW(backends_.one().random_fill({.dst = m.mut(), .trunc_sigma = 0.4, .global_cols = 8}, backends_.stream()),
               Bug);
}

/// The moments of a normal distribution under the condition |x| <= c: with phi its density and Z = 2 Phi(c) - 1,
/// E x^2 = 1 - 2 c phi(c) / Z and E x^4 = 3 E x^2 - 2 c^3 phi(c) / Z.
TEST_F(ElementwiseTest, TruncatedNormalsHaveTheMomentsOfTheirDistribution) {
  constexpr int64_t kCount = 1 << 19;
  const double root = 1 / std::sqrt(static_cast<double>(kCount));
  for (const double trunc_sigma : {0.5, 1.0, 3.0}) {
    HostMatrix m(DType::kFloat64, 1, kCount);
    backends_.one().random_fill(
        {.dst = m.mut(), .scale = 1, .trunc_sigma = trunc_sigma, .seed = 1, .rng_stream = 2, .global_cols = kCount},
        backends_.stream());
    backends_.finish();
    const double density = std::exp(-trunc_sigma * trunc_sigma / 2) / std::sqrt(2 * std::numbers::pi),
                 Z = std::erf(trunc_sigma / std::sqrt(2));
    const double square = 1 - 2 * trunc_sigma * density / Z,
                 fourth = 3 * square - 2 * trunc_sigma * trunc_sigma * trunc_sigma * density / Z;
    double sums[2] = {0, 0}, largest = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      sums[0] += m.at(i);
      sums[1] += m.at(i) * m.at(i);
      largest = std::max(largest, std::abs(m.at(i)));
    }
    EXPECT_LE(largest, trunc_sigma);
    EXPECT_GT(largest, trunc_sigma * (1 - 100 * root)) << "none is pushed away from the cut";
    EXPECT_NEAR(sums[0] / kCount, 0, 5 * std::sqrt(square) * root);
    EXPECT_NEAR(sums[1] / kCount, square, 5 * std::sqrt(fourth - square * square) * root);
  }
}

TEST_F(ElementwiseTest, RandomNormalsRoundLikeTheDefinitionAndHaveItsMoments) {
  constexpr int64_t kCount = 1 << 20;
  HostMatrix m(DType::kFloat32, 1, kCount);
  backends_.one().random_fill({.dst = m.mut(), .scale = 1, .seed = 1, .rng_stream = 2, .global_cols = kCount},
                              backends_.stream());
  backends_.finish();
  double sums[4] = {0, 0, 0, 0};
  int64_t different = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const double v = m.at(i);
    if (i % 16 == 5) different += v != static_cast<float>(Philox::normal_at(1, 2, static_cast<uint64_t>(i))) ? 1 : 0;
    sums[0] += v;
    sums[1] += v * v;
    sums[2] += v * v * v;
    sums[3] += v * v * v * v;
  }
  EXPECT_LE(different, 2);  // of 65536: only where the double lies within 1e-15 of a tie
  const double root = 1 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(sums[0] / kCount, 0, 5 * root);
  EXPECT_NEAR(sums[1] / kCount, 1, 5 * std::sqrt(2.0) * root);
  EXPECT_NEAR(sums[2] / kCount, 0, 5 * std::sqrt(15.0) * root);
  EXPECT_NEAR(sums[3] / kCount, 3, 5 * std::sqrt(96.0) * root);
}

}  // namespace
}  // namespace ashlar::test
