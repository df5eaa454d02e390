#include <gtest/gtest.h>

#include "tests/kernels/cases/router_reference.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

struct StatisticsCase {
  int64_t N, E, k, sequence_rows;
};

/// Sequences of one row, short last ones, one that is longer than all rows, and rows for several threads and blocks.
constexpr std::array<StatisticsCase, 11> kStatisticsCases = {StatisticsCase{1, 1, 1, 1},
                                                             {3, 3, 2, 1},
                                                             {10, 7, 3, 4},
                                                             {4, 33, 8, 4},
                                                             {3, 257, 5, 7},
                                                             {33, 31, 1, 8},
                                                             {65, 64, 6, 32},
                                                             {130, 16, 4, 65},
                                                             {7, 128, 2, 6},
                                                             {900, 9, 2, 256},
                                                             {1025, 5, 3, 1024}};

/// The sums over rows [first, last), and the bounds of their errors.
struct RouterSums {
  RouterSums(const HostMatrix& logits, const HostMatrix& choices, RouterScore score, int64_t first, int64_t last)
      : counts(static_cast<size_t>(logits.cols())), scores(counts), scores_error(counts) {
    for (int64_t n = first; n < last; ++n) {
      for (const int32_t e : router_choices(choices, n)) ++counts[static_cast<size_t>(e)];
      const RouterRow row = router_row(logits, n), p = router_shares(row, score);
      const double error = router_error(logits.dtype(), row);
      for (size_t e = 0; e < p.size(); ++e) {
        scores[e] += static_cast<double>(p[e]);
        scores_error[e] += error * static_cast<double>(p[e]) + kRouterUnderflow;
        if (p[e] == 0) continue;
        entropy += static_cast<double>(-p[e] * std::log(p[e]));
        entropy_error += error * static_cast<double>(p[e] * (1 - std::log(p[e]))) + kRouterUnderflow;
      }
      const double lse = static_cast<double>(log_sum_exp(row));
      lse_squares += lse * lse;
      // The lse is the largest logit and the logarithm of a sum of 1 to E.
      const double size = 1 + std::abs(lse) + std::log(static_cast<double>(row.size()));
      lse_error += 2 * std::abs(lse) * unit_roundoff(logits.dtype()) * (16 + 2 * size) + kRouterUnderflow;
      // The sums may be in the accumulate type or wider.
      sum_error = unit_roundoff(logits.dtype()) * 2 * std::sqrt(static_cast<double>(last - first));
    }
  }

  std::vector<double> counts, scores, scores_error;
  double entropy = 0, entropy_error = 0, lse_squares = 0, lse_error = 0, sum_error = 0;
};

struct BalanceCase {
  int64_t counted, S, E;  ///< rows of counts, rows of scores
};

constexpr std::array<BalanceCase, 8> kBalanceCases = {BalanceCase{1, 1, 1}, {3, 3, 3},    {1, 5, 7},   {4, 4, 257},
                                                      {1, 9, 64},           {33, 33, 16}, {1, 70, 33}, {2, 2, 128}};

class RouterStatisticsTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  /// {counts, scores, lse_squares, entropy, all_counts}, the last three added to 3, 5 and 7.
  Outputs statistics(Backend& backend, const HostMatrix& logits, const HostMatrix& choices, RouterScore score,
                     int64_t sequence_rows) {
    const int64_t S = (logits.rows() + sequence_rows - 1) / sequence_rows, E = logits.cols();
    Outputs out = {HostMatrix(DType::kFloat64, S, E, 1), HostMatrix(DType::kFloat64, S, E, 2),
                   router_vector(DType::kFloat64, {3}), router_vector(DType::kFloat64, {5}),
                   router_vector(DType::kFloat64, std::vector<double>(static_cast<size_t>(E), 7))};
    backend.router_statistics({.logits = logits.view(),
                               .choices = choices.view(),
                               .counts = out[0].mut(),
                               .scores = out[1].mut(),
                               .lse_squares = out[2].mut(),
                               .entropy = out[3].mut(),
                               .all_counts = out[4].mut(),
                               .score = score,
                               .sequence_rows = sequence_rows},
                              backends_.stream());
    backends_.finish();
    return out;
  }

  /// {loss, balance}, the loss added to `start`.
  Outputs balance(Backend& backend, const HostMatrix& counts, const HostMatrix& scores, double factor,
                  double loss_factor, DType acc = DType::kFloat64, double start = 0) {
    Outputs out = {router_vector(DType::kFloat64, {start}), HostMatrix(acc, counts.rows(), counts.cols(), 1)};
    backend.balance_loss({.counts = counts.view(),
                          .scores = scores.view(),
                          .balance = out[1].mut(),
                          .loss = out[0].mut(),
                          .factor = factor,
                          .loss_factor = loss_factor},
                         backends_.stream());
    backends_.finish();
    return out;
  }
};

TEST_F(RouterStatisticsTest, AreSumsOfSequencesAndOfAllRows) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const StatisticsCase& c : kStatisticsCases) {
      for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
        SCOPED_TRACE(
            str_cat(name_of(acc), " [", c.N, ", ", c.E, "] sequences of ", c.sequence_rows, " ", name_of(score)));
        const HostMatrix logits = random_matrix(acc, c.N, c.E, 1, 3, 0.5, 2);
        const HostMatrix choices = random_choices(c.N, c.E, c.k, 2);  // not those of the logits
        const RouterSums all(logits, choices, score, 0, c.N);
        std::vector<RouterSums> sequences;
        for (int64_t n = 0; n < c.N; n += c.sequence_rows)
          sequences.emplace_back(logits, choices, score, n, std::min(n + c.sequence_rows, c.N));
        backends_.each(
            [&](Backend& backend) {
              Outputs out = statistics(backend, logits, choices, score, c.sequence_rows);
              EXPECT_TRUE(out == statistics(backend, logits, choices, score, c.sequence_rows)) << "not the same bits";
              return out;
            },
            [&](const Outputs& out) {
              for (int64_t s = 0; s < std::ssize(sequences); ++s) {
                const RouterSums& sums = sequences[static_cast<size_t>(s)];
                for (int64_t e = 0; e < c.E; ++e) {
                  const auto i = static_cast<size_t>(e);
                  ASSERT_EQ(out[0].at(s, e), sums.counts[i]) << s << " " << e;
                  ASSERT_NEAR(out[1].at(s, e), sums.scores[i], sums.scores_error[i] + sums.sum_error * sums.scores[i]);
                }
              }
              ASSERT_NEAR(out[2].at(0), 3 + all.lse_squares, all.lse_error + all.sum_error * (3 + all.lse_squares));
              ASSERT_NEAR(out[3].at(0), 5 + all.entropy, all.entropy_error + all.sum_error * (5 + all.entropy));
              for (int64_t e = 0; e < c.E; ++e) ASSERT_EQ(out[4].at(e), 7 + all.counts[static_cast<size_t>(e)]) << e;
            });
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(RouterStatisticsTest, ByHand) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(name_of(acc));
    HostMatrix logits(acc, 3, 2), choices(DType::kInt32, 3, 1);
    const double third = std::log(3.0);
    for (int64_t i = 0; i < 6; ++i) logits.set(i, std::array<double, 6>{0, 0, 0, third, 0, 0}[static_cast<size_t>(i)]);
    for (int64_t n = 0; n < 3; ++n) choices.set(n, n == 0 ? 0 : 1);
    const double error = 8 * router_error(acc, router_row(logits, 1)), log2 = std::log(2.0);
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      // In row 1 the softmax has p = 1/4 and 3/4, the sigmoid s = 1/2 and 3/4, so that p = 2/5 and 3/5.
      const double low = score == RouterScore::kSoftmax ? 0.25 : 0.4, high = 1 - low;
      backends_.each([&](Backend& backend) { return statistics(backend, logits, choices, score, 2); },
                     [&](const Outputs& out) {
                       const std::array<double, 4> counts = {1, 1, 0, 1}, scores = {0.5 + low, 0.5 + high, 0.5, 0.5};
                       for (int64_t i = 0; i < 4; ++i) {
                         EXPECT_EQ(out[0].at(i), counts[static_cast<size_t>(i)]) << i;
                         EXPECT_NEAR(out[1].at(i), scores[static_cast<size_t>(i)], error) << i;
                       }
                       EXPECT_NEAR(out[2].at(0), 3 + 2 * log2 * log2 + 4 * log2 * log2, error);
                       EXPECT_NEAR(out[3].at(0), 5 + 2 * log2 - low * std::log(low) - high * std::log(high), error);
                     });
    }
  }
}

TEST_F(RouterStatisticsTest, SumsOverAllRowsMayBeAbsent) {
  const HostMatrix logits = random_matrix(DType::kFloat32, 9, 5, 1), choices = random_choices(9, 5, 2, 2);
  backends_.each(
      [&](Backend& backend) {
        const Outputs all = statistics(backend, logits, choices, RouterScore::kSoftmax, 4);
        for (const bool with_lse : {false, true}) {
          for (const bool with_entropy : {false, true}) {
            Outputs out = {HostMatrix(DType::kFloat64, 3, 5, 1), HostMatrix(DType::kFloat64, 3, 5, 2),
                           router_vector(DType::kFloat64, {3}), router_vector(DType::kFloat64, {5})};
            backend.router_statistics({.logits = logits.view(),
                                       .choices = choices.view(),
                                       .counts = out[0].mut(),
                                       .scores = out[1].mut(),
                                       .lse_squares = with_lse ? out[2].mut() : MutView{},
                                       .entropy = with_entropy ? out[3].mut() : MutView{},
                                       .sequence_rows = 4},
                                      backends_.stream());
            backends_.finish();
            EXPECT_TRUE(out[0] == all[0] && out[1] == all[1]);
            EXPECT_EQ(out[2].at(0), with_lse ? all[2].at(0) : 3);
            EXPECT_EQ(out[3].at(0), with_entropy ? all[3].at(0) : 5);
          }
        }
        return all;
      },
      [](const Outputs&) {});
}

// p underflows to zero, where p log p is zero and not NaN.
TEST_F(RouterStatisticsTest, UnlikelyExpertsAddNothing) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      HostMatrix logits(acc, 2, 3), choices(DType::kInt32, 2, 1);
      for (int64_t i = 0; i < 6; ++i) logits.set(i, i % 3 == 0 ? 1 : -900);
      choices.fill(2);
      backends_.each([&](Backend& backend) { return statistics(backend, logits, choices, score, 2); },
                     [&](const Outputs& out) {
                       const double error = 16 * unit_roundoff(acc);
                       for (int64_t e = 0; e < 3; ++e) EXPECT_NEAR(out[1].at(e), e == 0 ? 2 : 0, error);
                       EXPECT_NEAR(out[2].at(0), 3 + 2, 2 * error);
                       EXPECT_NEAR(out[3].at(0), 5, 2 * error);
                     });
    }
  }
}

TEST_F(RouterStatisticsTest, SigmoidsThatAllUnderflowAddNothing) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    HostMatrix logits(acc, 2, 3), choices(DType::kInt32, 2, 1);
    logits.fill(-1000);
    choices.fill(2);
    backends_.each([&](Backend& backend) { return statistics(backend, logits, choices, RouterScore::kSigmoid, 2); },
                   [&](const Outputs& out) {
                     for (int64_t e = 0; e < 3; ++e) EXPECT_EQ(out[1].at(e), 0);
                     EXPECT_EQ(out[3].at(0), 5);
                     EXPECT_EQ(out[4].at(2), 9);
                   });
  }
}

TEST_F(RouterStatisticsTest, BalanceLossIsTheFormula) {
  const DeviceStruct<StepScalars> scalars({.lr = 7, .inv_valid_tokens = 11, .inv_tokens = 0.3});
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const BalanceCase& c : kBalanceCases) {
      for (const bool with_scalars : {false, true}) {
        for (const bool with_balance : {false, true}) {
          SCOPED_TRACE(str_cat(name_of(acc), " [", c.S, ", ", c.E, "] counts ", c.counted, " scalars ", with_scalars));
          HostMatrix counts(DType::kFloat64, c.counted, c.E, 1);
          HostMatrix scores = random_matrix(DType::kFloat64, c.S, c.E, 2, 2, 4);
          std::mt19937_64 generator(1);
          for (int64_t i = 0; i < c.counted * c.E; ++i) counts.set(i, static_cast<double>(generator() % 6));
          for (int64_t e = 0; e < c.E && c.counted > 1; ++e) counts.set(1, e, 0);  // a sequence without choices
          const auto f = [&](int64_t s, int64_t e) {
            double sum = 0;
            for (int64_t i = 0; i < c.E; ++i) sum += counts.at(s, i);
            return sum == 0 ? 0 : counts.at(s, e) / sum;
          };
          const auto experts = static_cast<double>(c.E);
          double loss = 0, size = 0;
          for (int64_t s = 0; s < c.S; ++s) {
            for (int64_t e = 0; e < c.E; ++e) {
              const double term = experts * 0.7 * f(c.counted == 1 ? 0 : s, e) * scores.at(s, e);
              loss += term;
              size += std::abs(term);
            }
          }
          const auto run = [&](Backend& backend) {
            Outputs out = {router_vector(DType::kFloat64, {0.25}), HostMatrix(acc, c.counted, c.E, 1)};
            backend.balance_loss({.counts = counts.view(),
                                  .scores = scores.view(),
                                  .balance = with_balance ? out[1].mut() : MutView{},
                                  .loss = out[0].mut(),
                                  .scalars = with_scalars ? scalars.view() : ConstView{},
                                  .factor = 1.3,
                                  .loss_factor = 0.7},
                                 backends_.stream());
            backends_.finish();
            return out;
          };
          backends_.each(
              [&](Backend& backend) {
                Outputs out = run(backend);
                EXPECT_TRUE(out == run(backend)) << "not the same bits";
                return out;
              },
              [&](const Outputs& out) {
                EXPECT_NEAR(out[0].at(0), 0.25 + loss, tolerance(DType::kFloat64, c.S * c.E, 0.25 + size));
                if (!with_balance) {
                  EXPECT_TRUE(out[1] == HostMatrix(acc, c.counted, c.E, 1));
                  return;
                }
                const auto expected = [&](int64_t s, int64_t e) {
                  return (with_scalars ? 0.3 : 1) * 1.3 * experts * f(s, e);
                };
                expect_near(out[1], c.E, expected, expected, "balance");
              });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(RouterStatisticsTest, BalanceLossIsOneAtPerfectBalance) {
  HostMatrix counts(DType::kFloat64, 2, 8), scores(DType::kFloat64, 2, 8), uneven(DType::kFloat64, 2, 8);
  counts.fill(4);
  scores.fill(2);  // of 16 rows
  for (int64_t i = 0; i < 16; ++i) uneven.set(i, i % 8 < 4 ? 3.5 : 0.5);
  HostMatrix one_row(DType::kFloat64, 1, 8), one_expert(DType::kFloat64, 2, 8), all_scores(DType::kFloat64, 2, 8);
  one_row.fill(100);
  one_expert.fill(0);
  all_scores.fill(0);
  for (const int64_t s : {0, 1}) {
    one_expert.set(s, 5, 32);
    all_scores.set(s, 5, 16);
  }
  const auto expect_loss = [&](const HostMatrix& c, const HostMatrix& s, double loss, double start = 0) {
    backends_.each([&](Backend& backend) { return balance(backend, c, s, 1, 1. / 32, DType::kFloat64, start); },
                   [&](const Outputs& out) { EXPECT_EQ(out[0].at(0), loss); });
  };
  expect_loss(counts, scores, 1);
  expect_loss(counts, uneven, 1);
  expect_loss(counts, scores, 3.5, 2.5);
  expect_loss(one_row, scores, 1);
  expect_loss(one_expert, all_scores, 8);  // the worst: the number of experts
  expect_loss(one_expert, scores, 1);
}

/// The loss is linear in the scores, with the balance as its gradient.
TEST_F(RouterStatisticsTest, BalanceIsTheGradientOfTheLoss) {
  for (const int64_t counted : {1, 6}) {
    const HostMatrix scores = random_matrix(DType::kFloat64, 6, 11, 1, 0, 4);
    HostMatrix counts(DType::kFloat64, counted, 11);
    for (int64_t i = 0; i < counted * 11; ++i) counts.set(i, static_cast<double>(i * i % 7));
    backends_.each([&](Backend& backend) { return balance(backend, counts, scores, 0.4, 0.4); },
                   [&](const Outputs& out) {
                     double sum = 0, size = 0;
                     for (int64_t s = 0; s < 6; ++s) {
                       for (int64_t e = 0; e < 11; ++e) {
                         const double term = out[1].at(counted == 1 ? 0 : s, e) * scores.at(s, e);
                         sum += term;
                         size += std::abs(term);
                       }
                     }
                     EXPECT_NEAR(out[0].at(0), sum, tolerance(DType::kFloat64, 66, size));
                   });
  }
}

TEST_F(RouterStatisticsTest, ViolationsOfStatisticsAreBugs) {
  const HostMatrix logits = random_matrix(DType::kFloat32, 5, 4, 1), bf16 = random_matrix(DType::kBFloat16, 5, 4, 1);
  const HostMatrix choices = random_choices(5, 4, 2, 2), gaps(DType::kInt32, 5, 2, 1);
  HostMatrix counts(DType::kFloat64, 3, 4), scores = counts, fp32(DType::kFloat32, 3, 4),
                                            fp32_vector(DType::kFloat32, 1, 1);
  HostMatrix lse = router_vector(DType::kFloat64, {0}), entropy = lse,
             three = router_vector(DType::kFloat64, {0, 0, 0});
  const auto call = [&](const auto& change) {
    RouterStatistics args{.logits = logits.view(),
                          .choices = choices.view(),
                          .counts = counts.mut(),
                          .scores = scores.mut(),
                          .lse_squares = lse.mut(),
                          .entropy = entropy.mut(),
                          .sequence_rows = 2};
    change(args);
    backends_.one().router_statistics(args, backends_.stream());
    backends_.finish();
  };
  using Args = RouterStatistics;
  EXPECT_NO_THROW(call([](Args&) {}));
  EXPECT_THROW(call([&](Args& a) { a.logits = bf16.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices = gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices.rows = 4; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.sequence_rows = 0; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.sequence_rows = 3; }), Bug) << "two sequences, three rows of sums";
  EXPECT_THROW(call([&](Args& a) { a.counts = fp32.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.counts = {}; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.scores = fp32.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.scores.cols = 3; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.lse_squares = three.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.entropy = three.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.entropy = fp32_vector.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.all_counts = three.mut(); }), Bug);
}

TEST_F(RouterStatisticsTest, ViolationsOfBalanceLossAreBugs) {
  HostMatrix counts(DType::kFloat64, 3, 4), scores(DType::kFloat64, 3, 4), two(DType::kFloat64, 2, 4);
  HostMatrix narrow(DType::kFloat64, 3, 3), fp32(DType::kFloat32, 3, 4), one(DType::kFloat32, 1, 4);
  HostMatrix bf16(DType::kBFloat16, 3, 4), loss = router_vector(DType::kFloat64, {0});
  HostMatrix losses = router_vector(DType::kFloat64, {0, 0}), fp32_loss = router_vector(DType::kFloat32, {0});
  counts.fill(1);
  scores.fill(1);
  const DeviceStruct<ClipState> other;
  const auto call = [&](const auto& change) {
    BalanceLoss args{.counts = counts.view(), .scores = scores.view(), .balance = fp32.mut(), .loss = loss.mut()};
    change(args);
    backends_.one().balance_loss(args, backends_.stream());
    backends_.finish();
  };
  using Args = BalanceLoss;
  EXPECT_NO_THROW(call([](Args&) {}));
  EXPECT_THROW(call([&](Args& a) { a.counts = two.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.counts = narrow.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.counts = fp32.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.scores = fp32.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.balance = one.mut(); }), Bug) << "one row of balance for three of counts";
  EXPECT_THROW(call([&](Args& a) { a.balance = bf16.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.loss = losses.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.loss = fp32_loss.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.loss = {}; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.scalars = other.view(); }), Bug);
}

}  // namespace
}  // namespace ashlar::test
