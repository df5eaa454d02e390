#include <gtest/gtest.h>

#include <limits>

#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

struct LossCase {
  int64_t rows, cols, valid_cols;
  double logit_scale, z_coef;
  double softcap = 0;
  ZKind z_kind = ZKind::kLse;

  LossShape shape(const Integers& targets) const {
    return {.targets = view_of(targets), .valid_cols = valid_cols, .logit_scale = logit_scale, .softcap = softcap};
  }
};

constexpr std::array<LossCase, 14> kLossCases = {LossCase{1, 1, 1, 1, 0},
                                                 {3, 3, 2, 0.5, 0},
                                                 {5, 31, 31, 1, 1e-2},
                                                 {33, 257, 250, 2, 1e-4},
                                                 {3, 8197, 8193, 1, 1e-4},
                                                 {7, 1000, 993, 0.125, 0},
                                                 {2, 12300, 12300, 1, 0.3},
                                                 {129, 257, 257, 1, 1e-3},
                                                 {6, 2064, 2053, 0.5, 1e-3},
                                                 {3, 17408, 17400, 1, 1e-4},
                                                 {5, 31, 31, 1, 1e-2, 6},
                                                 {33, 257, 250, 2, 1e-4, 20},
                                                 {7, 1000, 993, 0.5, 1e-2, 0, ZKind::kMaxLogit},
                                                 {3, 8200, 8193, 1, 1e-2, 9, ZKind::kMaxLogit}};
constexpr double kInvValidTokens = 1.0 / 37;

/// One softmax over all columns, in double.
struct LossReference {
  LossReference(const HostMatrix& logits, const Integers& targets_in, const LossCase& k_in)
      : targets(targets_in), k(k_in) {
    z = [&logits, this](int64_t n, int64_t c) {
      const double x = logits.at(n, c) * k.logit_scale;
      return k.softcap == 0 || std::isinf(x) ? x : k.softcap * std::tanh(x / k.softcap);
    };
    for (int64_t n = 0; n < k.rows; ++n) {
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t c = 0; c < k.valid_cols; ++c) max = std::max(max, z(n, c));
      double sum = 0, count = 0;
      for (int64_t c = 0; c < k.valid_cols; ++c) {
        sum += std::exp(z(n, c) - max);
        count += z(n, c) == max ? 1 : 0;
      }
      row_max.push_back(max);
      max_count.push_back(count);
      lse.push_back(max + std::log(sum));
      z_target.push_back(targets[static_cast<size_t>(n)] < 0 ? 0 : z(n, targets[static_cast<size_t>(n)]));
    }
  }
  double p(int64_t n, int64_t c) const { return std::exp(z(n, c) - lse[static_cast<size_t>(n)]); }
  /// What the z-loss adds to a logit's gradient.
  double z_grad(int64_t n, int64_t c) const {
    const auto i = static_cast<size_t>(n);
    if (k.z_kind == ZKind::kLse) return 2 * k.z_coef * lse[i] * p(n, c);
    return z(n, c) == row_max[i] ? 2 * k.z_coef * row_max[i] / max_count[i] : 0;
  }
  /// dz / d(logit * scale).
  double slope(int64_t n, int64_t c) const { return k.softcap == 0 ? 1 : 1 - std::pow(z(n, c) / k.softcap, 2); }
  double dlogit(int64_t n, int64_t c) const {
    const int32_t target = targets[static_cast<size_t>(n)];
    if (target < 0 || c >= k.valid_cols || std::isinf(z(n, c))) return 0;
    return k.logit_scale * kInvValidTokens * slope(n, c) * (p(n, c) + z_grad(n, c) - (c == target ? 1 : 0));
  }
  double squared(size_t i) const { return k.z_kind == ZKind::kLse ? lse[i] * lse[i] : row_max[i] * row_max[i]; }
  /// The loss to which dlogits is the gradient.
  double total() const {
    double sum = 0;
    for (int64_t n = 0; n < k.rows; ++n) {
      const auto i = static_cast<size_t>(n);
      if (targets[i] >= 0) sum += lse[i] - z_target[i] + k.z_coef * squared(i);
    }
    return sum * kInvValidTokens;
  }

  Integers targets;
  LossCase k;
  std::vector<double> row_max, max_count, lse, z_target;
  std::function<double(int64_t, int64_t)> z;
};

Integers make_targets(const LossCase& k) {
  std::mt19937_64 generator(3);
  Integers targets;
  for (int64_t n = 0; n < k.rows; ++n) {
    const bool counted = k.rows == 1 || generator() % 4 != 0;
    targets.push_back(counted ? static_cast<int32_t>(generator() % static_cast<uint64_t>(k.valid_cols)) : -1);
  }
  return targets;
}

/// Logits with garbage (NaN) in the padded columns.
HostMatrix make_logits(DType acc, const LossCase& k, double deviation = 3) {
  HostMatrix logits = random_matrix(acc, k.rows, k.cols, 1, 2, 0.5, deviation);
  for (int64_t n = 0; n < k.rows; ++n) {
    for (int64_t c = k.valid_cols; c < k.cols; ++c) logits.set(n, c, std::nan(""));
  }
  return logits;
}

/// The statistics of one whole vocabulary: {row_max, row_sum, target_logit} and stats.
struct Result {
  Outputs rows;
  HostMatrix max_count;  ///< where the z-loss is of the largest logit
  DeviceStruct<LossStats> stats;
};

class LossTest : public ::testing::Test {
 protected:
  Result forward(Backend& backend, const HostMatrix& logits, const Integers& targets, const LossCase& k) {
    const LossShape shape = k.shape(targets);
    Result r;
    r.rows.assign(3, HostMatrix(accumulate_dtype(logits.dtype()), 1, k.rows));
    backend.loss_row_stats({.logits = logits.view(),
                            .row_max = r.rows[0].mut(),
                            .row_sum = r.rows[1].mut(),
                            .target_logit = r.rows[2].mut(),
                            .shape = shape},
                           backends_.stream());
    backend.loss_reduce({.row_max = r.rows[0].view(),
                         .row_sum = r.rows[1].view(),
                         .target_logit = r.rows[2].view(),
                         .shape = shape,
                         .z_coef = k.z_coef,
                         .z_kind = k.z_kind,
                         .stats = r.stats.mut()},
                        backends_.stream());
    if (k.z_kind == ZKind::kMaxLogit) {
      r.max_count = HostMatrix(accumulate_dtype(logits.dtype()), 1, k.rows);
      backend.loss_max_count(
          {.logits = logits.view(), .row_max = r.rows[0].view(), .max_count = r.max_count.mut(), .shape = shape},
          backends_.stream());
    }
    backends_.finish();
    return r;
  }
  void backward(Backend& backend, const HostMatrix& logits, const Integers& targets, const LossCase& k, const Result& r,
                MutView dlogits) {
    const DeviceStruct<StepScalars> scalars({.inv_valid_tokens = kInvValidTokens});
    backend.loss_backward({.logits = logits.view(),
                           .row_max = r.rows[0].view(),
                           .row_sum = r.rows[1].view(),
                           .max_count = r.max_count.view(),
                           .dlogits = dlogits,
                           .shape = k.shape(targets),
                           .z_coef = k.z_coef,
                           .scalars = scalars.view()},
                          backends_.stream());
    backends_.finish();
  }

  void check_formula(DType from, DType dtype, const LossCase& k);
  void expect_two_slices(const LossCase& k, DType acc);

  EveryBackend backends_;
};

/// Statistics and gradient from logits of one dtype to dlogits of another, and in place where they are one.
void LossTest::check_formula(DType from, DType dtype, const LossCase& k) {
  const DType acc = accumulate_dtype(dtype);
  SCOPED_TRACE(str_cat(name_of(from), " to ", name_of(dtype), " [", k.rows, ", ", k.cols, "] valid ", k.valid_cols));
  const HostMatrix logits = make_logits(from, k);
  const Integers targets = make_targets(k);
  const LossReference ref(logits, targets, k);
  backends_.each(
      [&](Backend& backend) {
        const Result r = forward(backend, logits, targets, k);
        Outputs out = r.rows;
        HostMatrix stats(DType::kFloat64, 1, 6);
        const double values[] = {r.stats->loss,      r.stats->z_loss,    r.stats->log_z,
                                 r.stats->max_log_z, r.stats->max_logit, static_cast<double>(r.stats->valid)};
        for (int64_t i = 0; i < 6; ++i) stats.set(i, values[i]);
        out.push_back(stats);
        out.emplace_back(dtype, k.rows, k.cols, 3);
        backward(backend, logits, targets, k, r, out.back().mut());
        if (dtype == from) {  // in place
          out.push_back(logits);
          backward(backend, out.back(), targets, k, r, out.back().mut());
        }
        return out;
      },
      [&](const Outputs& out) {
        const auto at = [](const std::vector<double>& v) {
          return [&v](int64_t, int64_t n) { return v[static_cast<size_t>(n)]; };
        };
        const auto size = [&](int64_t, int64_t n) {
          return 1 + std::abs(ref.lse[static_cast<size_t>(n)]) + std::abs(ref.row_max[static_cast<size_t>(n)]);
        };
        expect_near(out[0], 1, at(ref.row_max), size, "row_max");
        // Shifted logits of up to 20 in size: their rounding shows in the exponential.
        expect_near(
            out[1], k.cols,
            [&](int64_t, int64_t n) {
              return std::exp(ref.lse[static_cast<size_t>(n)] - ref.row_max[static_cast<size_t>(n)]);
            },
            [&](int64_t, int64_t n) {
              return 8 * (1 + k.softcap) *
                     std::exp(ref.lse[static_cast<size_t>(n)] - ref.row_max[static_cast<size_t>(n)]);
            },
            "row_sum");
        expect_near(out[2], 1, at(ref.z_target), size, "target_logit");
        double expected[6] = {0, 0, 0, -1e300, -1e300, 0};
        double magnitude = 1;
        for (int64_t n = 0; n < k.rows; ++n) {
          const auto i = static_cast<size_t>(n);
          if (targets[i] < 0) continue;
          expected[0] += ref.lse[i] - ref.z_target[i];
          expected[1] += k.z_coef * ref.squared(i);
          expected[2] += ref.lse[i];
          expected[3] = std::max(expected[3], ref.lse[i]);
          expected[4] = std::max(expected[4], ref.row_max[i]);
          expected[5] += 1;
          magnitude += 4 * (std::abs(ref.lse[i]) + std::abs(ref.z_target[i]) + std::abs(ref.row_max[i]));
        }
        for (int i = 0; i < 6; ++i) {
          EXPECT_NEAR(out[3].at(i), expected[i], i == 3 && expected[5] == 0 ? 0 : tolerance(acc, 1, magnitude))
              << "statistic " << i;
        }
        for (size_t i = 4; i < out.size(); ++i) {
          expect_near(
              out[i], k.cols, [&](int64_t n, int64_t c) { return ref.dlogit(n, c); },
              [&](int64_t n, int64_t c) {
                if (ref.dlogit(n, c) == 0) return 0.0;  // padding and uncounted rows are exactly zero
                // A capped z is rounded to its own size before it is exponentiated.
                const double weight = std::abs(k.logit_scale) * kInvValidTokens * (1 + k.softcap);
                return 8 * weight *
                       (ref.p(n, c) + std::abs(ref.z_grad(n, c)) + (c == targets[static_cast<size_t>(n)] ? 1 : 0));
              },
              "dlogits");
        }
      });
}

TEST_F(LossTest, IsTheFormula) {
  for (const DType dtype : kStorageDTypes) {
    for (const LossCase& k : kLossCases) {
      check_formula(accumulate_dtype(dtype), dtype, k);
      if (HasFatalFailure()) return;
    }
  }
}

// Rows that CUDA keeps in shared memory, and of bf16 or fp32 in registers too; odd and wide rows, which it reads again.
TEST_F(LossTest, StatisticsAndGradientAtOnceHaveTheBitsOfTwoCalls) {
  constexpr int64_t kWide = 20000;
  for (const LossCase& k : {LossCase{5, 2064, 2053, 0.5, 1e-3},
                            {1, 65536, 65501, 1, 1e-4},
                            {1, 131072, 131001, 1, 1e-4},
                            {7, 32, 24, 1, 0},
                            {3, 8200, 8193, 1, 1e-2, 9},
                            {7, 1000, 993, 0.125, 0},
                            {5, 31, 31, 1, 1e-2, 6},
                            {1, 163848, 163840, 1, 0}}) {
    for (const DType dtype : kStorageDTypes) {
      if (dtype == DType::kFloat64 && k.cols > kWide) continue;  // of fp64 no row is kept
      SCOPED_TRACE(str_cat(name_of(dtype), " [", k.rows, ", ", k.cols, "] valid ", k.valid_cols));
      const Integers targets = make_targets(k);
      const DeviceStruct<StepScalars> scalars({.inv_valid_tokens = kInvValidTokens});
      backends_.each(
          [&](Backend& backend) {
            const HostMatrix logits = make_logits(backend.logits_dtype(dtype), k);
            const Result apart = forward(backend, logits, targets, k);
            Outputs out = apart.rows;
            out.emplace_back(dtype, k.rows, k.cols, 8);
            backward(backend, logits, targets, k, apart, out.back().mut());
            for (int i = 0; i < 3; ++i) out.emplace_back(accumulate_dtype(dtype), 1, k.rows);
            const bool in_place = logits.dtype() == dtype;
            out.push_back(in_place ? logits : HostMatrix(dtype, k.rows, k.cols, 8));
            backend.loss_stats_and_grad({.logits = in_place ? out[7].view() : logits.view(),
                                         .row_max = out[4].mut(),
                                         .row_sum = out[5].mut(),
                                         .target_logit = out[6].mut(),
                                         .dlogits = out[7].mut(),
                                         .shape = k.shape(targets),
                                         .z_coef = k.z_coef,
                                         .scalars = scalars.view()},
                                        backends_.stream());
            backends_.finish();
            return out;
          },
          [&](const Outputs& out) {
            for (size_t i = 0; i < 4; ++i) {
              for (int64_t n = 0; n < out[i].rows(); ++n) {
                for (int64_t c = 0; c < out[i].cols(); ++c)
                  ASSERT_EQ(out[i].at(n, c), out[4 + i].at(n, c)) << "result " << i << " [" << n << ", " << c << "]";
              }
            }
          });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LossTest, TwoSlicesOfTheVocabularyEqualTheWhole) {
  for (const LossCase& k : {LossCase{33, 300, 287, 0.7, 1e-3}, {33, 300, 287, 0.7, 1e-3, 9, ZKind::kMaxLogit}}) {
    for (const DType acc : {DType::kFloat32, DType::kFloat64}) expect_two_slices(k, acc);
  }
}

void LossTest::expect_two_slices(const LossCase& k, DType acc) {
  {
    constexpr int64_t kCut = 101;
    const HostMatrix logits = make_logits(acc, k);
    Integers targets = make_targets(k);
    targets[0] = kCut, targets[1] = kCut - 1;
    Backend& backend = backends_.one();
    const Result whole = forward(backend, logits, targets, k);
    const auto slice = [&](const HostMatrix& m, int part) {
      ConstView v = m.view();
      v.data = static_cast<const char*>(v.data) + (part == 0 ? 0 : kCut) * size_of(acc);
      v.cols = part == 0 ? kCut : k.cols - kCut;
      return v;
    };
    const auto shape = [&](int part) {
      LossShape of_slice = k.shape(targets);
      of_slice.vocab_begin = part == 0 ? 0 : kCut;
      of_slice.valid_cols = part == 0 ? kCut : k.valid_cols - kCut;
      return of_slice;
    };
    std::array<HostMatrix, 2> max, sum, target;
    for (const size_t part : {0U, 1U}) {
      for (auto* rows : {&max, &sum, &target}) (*rows)[part] = HostMatrix(acc, 1, k.rows);
      backend.loss_row_stats({.logits = slice(logits, static_cast<int>(part)),
                              .row_max = max[part].mut(),
                              .row_sum = sum[part].mut(),
                              .target_logit = target[part].mut(),
                              .shape = shape(static_cast<int>(part))},
                             backends_.stream());
    }
    backends_.finish();
    HostMatrix global(acc, 1, k.rows);
    for (int64_t n = 0; n < k.rows; ++n) {
      global.set(n, std::max(max[0].at(n), max[1].at(n)));
      EXPECT_EQ(global.at(n), whole.rows[0].at(n));
    }
    for (const size_t part : {0U, 1U}) {
      backend.loss_rescale({.local_max = max[part].view(), .global_max = global.view(), .row_sum = sum[part].mut()},
                           backends_.stream());
    }
    backends_.finish();
    for (int64_t n = 0; n < k.rows; ++n) {
      sum[0].set(n, sum[0].at(n) + sum[1].at(n));
      target[0].set(n, target[0].at(n) + target[1].at(n));
      EXPECT_NEAR(sum[0].at(n), whole.rows[1].at(n), tolerance(acc, k.cols, whole.rows[1].at(n)));
      EXPECT_EQ(target[0].at(n), whole.rows[2].at(n));
    }
    HostMatrix count;  // of both slices
    if (k.z_kind == ZKind::kMaxLogit) {
      count = HostMatrix(acc, 1, k.rows);
      for (const int part : {0, 1}) {
        HostMatrix mine(acc, 1, k.rows);
        backend.loss_max_count(
            {.logits = slice(logits, part), .row_max = global.view(), .max_count = mine.mut(), .shape = shape(part)},
            backends_.stream());
        backends_.finish();
        for (int64_t n = 0; n < k.rows; ++n) count.set(n, mine.at(n) + (part == 0 ? 0 : count.at(n)));
      }
      for (int64_t n = 0; n < k.rows; ++n) EXPECT_EQ(count.at(n), whole.max_count.at(n));
    }
    HostMatrix expected(acc, k.rows, k.cols);
    backward(backend, logits, targets, k, whole, expected.mut());
    HostMatrix got(acc, k.rows, k.cols);
    const DeviceStruct<StepScalars> scalars({.inv_valid_tokens = kInvValidTokens});
    for (const int part : {0, 1}) {
      MutView out = got.mut();
      out.data = static_cast<char*>(out.data) + (part == 0 ? 0 : kCut) * size_of(acc);
      out.cols = part == 0 ? kCut : k.cols - kCut;
      backend.loss_backward({.logits = slice(logits, part),
                             .row_max = global.view(),
                             .row_sum = sum[0].view(),
                             .max_count = count.view(),
                             .dlogits = out,
                             .shape = shape(part),
                             .z_coef = k.z_coef,
                             .scalars = scalars.view()},
                            backends_.stream());
    }
    backends_.finish();
    expect_near(
        got, k.cols, [&](int64_t n, int64_t c) { return expected.at(n, c); },
        [&](int64_t n, int64_t c) { return std::abs(expected.at(n, c)) * 2; }, "dlogits");
  }
}

TEST_F(LossTest, BackwardIsTheDerivativeOfTheLoss) {
  constexpr double kStep = 1e-5;
  for (const LossCase& k :
       {LossCase{3, 9, 7, 1.3, 0.05}, {3, 9, 7, 1.3, 0.05, 2}, {3, 9, 7, 1.3, 0.05, 2, ZKind::kMaxLogit}}) {
    HostMatrix logits = make_logits(DType::kFloat64, k, 1);
    const Integers targets = {2, -1, 6};
    const Result r = forward(backends_.one(), logits, targets, k);
    HostMatrix dlogits(DType::kFloat64, k.rows, k.cols);
    backward(backends_.one(), logits, targets, k, r, dlogits.mut());
    const auto loss = [&] {
      const Result shifted = forward(backends_.one(), logits, targets, k);
      return (shifted.stats->loss + shifted.stats->z_loss) * kInvValidTokens;
    };
    EXPECT_NEAR(loss(), LossReference(logits, targets, k).total(), 1e-12);
    for (int64_t n = 0; n < k.rows; ++n) {
      for (int64_t c = 0; c < k.valid_cols; ++c) {
        const double value = logits.at(n, c);
        logits.set(n, c, value + kStep);
        const double above = loss();
        logits.set(n, c, value - kStep);
        const double below = loss();
        logits.set(n, c, value);
        EXPECT_NEAR(dlogits.at(n, c), (above - below) / (2 * kStep), 1e-6 * kInvValidTokens);
      }
    }
  }
}

// A masked id is as one that the vocabulary does not have, in either slice, capped or not.
TEST_F(LossTest, MaskedIdsCountForNothing) {
  const Integers ids = {0, 3, 17, 30, 39, 300};  // 30 is the column behind the last
  for (const DType dtype : kStorageDTypes) {
    for (const double softcap : {0.0, 7.0}) {
      const LossCase k{5, 40, 38, 0.5, 1e-2, softcap};
      const DType logits_dtype = dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
      const HostMatrix logits = make_logits(logits_dtype, k);
      const Integers targets = {1, 2, 16, -1, 37};
      HostMatrix expected = logits;
      for (int64_t n = 0; n < k.rows; ++n) {
        for (const int32_t id : {10, 13, 27}) expected.set(n, id, -std::numeric_limits<double>::infinity());
      }
      const LossReference ref(expected, targets, k);
      backends_.each(
          [&](Backend& backend) {
            Outputs out = {logits, HostMatrix(dtype, k.rows, k.cols)};
            backend.loss_mask({.logits = out[0].mut(), .ids = view_of(ids), .vocab_begin = -10}, backends_.stream());
            const Result r = forward(backend, out[0], targets, k);
            backward(backend, out[0], targets, k, r, out[1].mut());
            return out;
          },
          [&](const Outputs& out) {
            for (int64_t n = 0; n < k.rows; ++n) {
              for (int64_t c = 0; c < k.valid_cols; ++c) ASSERT_EQ(out[0].at(n, c), expected.at(n, c)) << n << " " << c;
            }
            expect_near(
                out[1], k.cols, [&](int64_t n, int64_t c) { return ref.dlogit(n, c); },
                [&](int64_t n, int64_t c) {
                  if (ref.dlogit(n, c) == 0) return 0.0;
                  return 8 * kInvValidTokens * (1 + softcap) * (1 + std::abs(ref.z_grad(n, c)));
                },
                "dlogits");
          });
    }
  }
}

// The largest logit's share of the z-loss goes to all columns that have it, in equal parts.
TEST_F(LossTest, EqualLargestLogitsShareTheirGradient) {
  const LossCase k{1, 40, 40, 1, 0.5, 0, ZKind::kMaxLogit};
  HostMatrix logits(DType::kFloat32, 1, 40);
  logits.fill(-100);
  for (const int64_t c : {3, 20, 39}) logits.set(c, 4);
  const Integers targets = {3};
  const Result r = forward(backends_.one(), logits, targets, k);
  EXPECT_EQ(r.max_count.at(0), 3);
  EXPECT_NEAR(r.stats->z_loss, 0.5 * 16, 1e-6);
  HostMatrix dlogits(DType::kFloat32, 1, 40);
  backward(backends_.one(), logits, targets, k, r, dlogits.mut());
  const double third = 1.0 / 3, share = 2 * 0.5 * 4 * third;
  EXPECT_NEAR(dlogits.at(20), kInvValidTokens * (third + share), 1e-8);
  EXPECT_NEAR(dlogits.at(3), kInvValidTokens * (third + share - 1), 1e-8);
}

TEST_F(LossTest, ShiftOfAllLogitsChangesNothingButLogZ) {
  const LossCase k{33, 257, 250, 1, 0};
  HostMatrix logits(DType::kFloat32, k.rows, k.cols);
  const HostMatrix noise = random_matrix(DType::kFloat32, k.rows, k.cols, 1, 0, 0, 3);
  for (int64_t i = 0; i < k.rows * k.cols; ++i)
    logits.set(i, std::round(noise.at(i) * 64) / 64);  // exact under the shift
  HostMatrix shifted = logits;
  for (int64_t i = 0; i < k.rows * k.cols; ++i) shifted.set(i, logits.at(i) + 1024);
  const Integers targets = make_targets(k);
  const Result a = forward(backends_.one(), logits, targets, k);
  const Result b = forward(backends_.one(), shifted, targets, k);
  EXPECT_TRUE(a.rows[1] == b.rows[1]);
  EXPECT_NEAR(a.stats->loss, b.stats->loss, 1e-9 * a.stats->loss);
  EXPECT_NEAR(a.stats->log_z + 1024.0 * static_cast<double>(a.stats->valid), b.stats->log_z, 1e-6);
  HostMatrix da(DType::kFloat32, k.rows, k.cols);
  HostMatrix db(DType::kFloat32, k.rows, k.cols);
  backward(backends_.one(), logits, targets, k, a, da.mut());
  backward(backends_.one(), shifted, targets, k, b, db.mut());
  EXPECT_TRUE(da == db);
}

TEST_F(LossTest, HugeLogitsDoNotOverflowAndNanShows) {
  const LossCase k{4, 40, 40, 1, 0};
  HostMatrix logits(DType::kFloat32, 4, 40);
  logits.fill(-3e38);
  logits.set(0, 5, 3e38);
  logits.set(1, 7, 1e4);
  logits.set(2, 9, std::nan(""));
  logits.set(3, 1, std::numeric_limits<double>::infinity());
  const Integers first_two = {5, 7, -1, -1};
  const Result r = forward(backends_.one(), logits, first_two, k);
  EXPECT_EQ(r.stats->loss, 0);
  EXPECT_EQ(r.stats->valid, 2);
  HostMatrix dlogits(DType::kFloat32, 4, 40);
  backward(backends_.one(), logits, first_two, k, r, dlogits.mut());
  for (int64_t i = 0; i < 160; ++i) EXPECT_EQ(dlogits.at(i), 0);
  for (const Integers& bad : {Integers{-1, -1, 3, -1}, {-1, -1, -1, 3}}) {
    EXPECT_FALSE(std::isfinite(forward(backends_.one(), logits, bad, k).stats->loss));
  }
}

// A rank whose slice is all padding, and one whose logits are all -inf, add nothing to the sums of the others; a NaN
// still shows.
TEST_F(LossTest, ASliceWithoutAFiniteLogitAddsNothing) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Integers targets = {100, 101, 102};
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    HostMatrix logits(acc, 3, 40);
    logits.fill(-kInf);
    logits.set(2, 7, std::nan(""));
    HostMatrix max(acc, 1, 3), sum(acc, 1, 3), target(acc, 1, 3), global(acc, 1, 3);
    global.fill(2);
    for (const int64_t valid_cols : {0, 40}) {
      const LossShape shape{.targets = view_of(targets), .valid_cols = valid_cols};
      backends_.one().loss_row_stats({.logits = logits.view(),
                                      .row_max = max.mut(),
                                      .row_sum = sum.mut(),
                                      .target_logit = target.mut(),
                                      .shape = shape},
                                     backends_.stream());
      backends_.finish();
      backends_.one().loss_rescale({.local_max = max.view(), .global_max = global.view(), .row_sum = sum.mut()},
                                   backends_.stream());
      backends_.finish();
      for (int64_t n = 0; n < 3; ++n) {
        EXPECT_EQ(max.at(n), -kInf);
        EXPECT_EQ(target.at(n), 0);
        EXPECT_TRUE(n == 2 && valid_cols > 0 ? std::isnan(sum.at(n)) : sum.at(n) == 0) << n << ": " << sum.at(n);
      }
    }
  }
}

// Where the backend keeps logits in storage dtype.
TEST_F(LossTest, LogitsOfBf16AreTheFormula) {
  if (backends_.one().logits_dtype(DType::kBFloat16) != DType::kBFloat16) return;
  for (const DType to : {DType::kBFloat16, DType::kFloat32}) {
    for (const LossCase& k : kLossCases) {
      check_formula(DType::kBFloat16, to, k);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LossTest, UniformLogitsGiveTheLogarithmOfTheVocabulary) {
  const LossCase k{3, 50304, 50257, 1, 0};
  HostMatrix logits(DType::kFloat32, k.rows, k.cols);
  logits.fill(0.25);
  const Result r = forward(backends_.one(), logits, {0, 50256, 1234}, k);
  EXPECT_NEAR(r.stats->loss, 3 * std::log(50257.0), 1e-6);
}

}  // namespace
}  // namespace ashlar::test
