#include <gtest/gtest.h>

#include "tests/kernels/cases/router_reference.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

struct RouteBackwardCase {
  int64_t N, E, k, balance_rows;
};

/// balance_rows divides few of the N, and exceeds one.
constexpr std::array<RouteBackwardCase, 10> kRouteBackwardCases = {RouteBackwardCase{1, 1, 1, 1},
                                                                   {3, 3, 2, 2},
                                                                   {7, 5, 5, 3},
                                                                   {5, 31, 3, 2},
                                                                   {9, 33, 8, 4},
                                                                   {4, 64, 6, 9},
                                                                   {6, 257, 7, 5},
                                                                   {150, 16, 4, 64},
                                                                   {5, 8, 1, 1},
                                                                   {4, 128, 2, 4}};

/// What route_backward reads. Absent views are empty matrices.
struct RouteBackwardProblem {
  RouterRule rule;
  HostMatrix logits, choices, dweights, expert_scale{}, balance{};
  int64_t balance_rows = 1;
  double z_scale = 0;
  DeviceStruct<StepScalars> scalars{};
  bool with_scalars = false;

  double inv_tokens() const { return with_scalars ? scalars->inv_tokens : 1; }
  RouteBackward call(MutView dlogits, MutView dexpert_scale, GradMode mode) const {
    return {.logits = logits.view(),
            .expert_scale = expert_scale.view(),
            .choices = choices.view(),
            .dweights = dweights.view(),
            .balance = balance.view(),
            .dlogits = dlogits,
            .dexpert_scale = dexpert_scale,
            .scalars = with_scalars ? scalars.view() : ConstView{},
            .scale_mode = mode,
            .balance_rows = balance_rows,
            .z_scale = z_scale,
            .rule = rule};
  }
};

struct RouteGradientOptions {
  bool balance = false, z = false, scalars = false;
  int64_t expert_scale = 0;  ///< 0: none, 1: storage dtype (bf16 beside fp32), 2: accumulate dtype
};

RouteBackwardProblem make_route_backward(DType acc, const RouteBackwardCase& c, const RouterRule& rule,
                                         const RouteGradientOptions& options) {
  RouteBackwardProblem p{.rule = rule,
                         .logits = random_matrix(acc, c.N, c.E, 1, 3, 0.5, 2),
                         .choices = random_choices(c.N, c.E, c.k, 2),
                         .dweights = random_matrix(acc, c.N, c.k, 3)};
  if (options.expert_scale > 0) {
    const DType storage = acc == DType::kFloat32 && options.expert_scale == 1 ? DType::kBFloat16 : acc;
    p.expert_scale = random_matrix(storage, 1, c.E, 4, 0, 1, 0.3);
    p.expert_scale.set(0, 0);  // its gradient needs no division
  }
  p.balance_rows = c.balance_rows;
  if (options.balance) p.balance = random_matrix(acc, (c.N + c.balance_rows - 1) / c.balance_rows, c.E, 5, 2);
  p.z_scale = options.z ? 0.6 : 0;
  p.with_scalars = options.scalars;
  *p.scalars = {.lr = 7, .inv_valid_tokens = 11, .inv_tokens = 0.375};
  return p;
}

/// One row of a problem.
struct RouteRow {
  RouterRow logits, expert_scale, dweights, balance;
  RouterChoices choices;
  RouterReal z;
};
RouteRow route_row_of(const RouteBackwardProblem& p, int64_t n) {
  return {router_row(p.logits, n),      router_row(p.expert_scale, 0),
          router_row(p.dweights, n),    p.balance.present() ? router_row(p.balance, n / p.balance_rows) : RouterRow{},
          router_choices(p.choices, n), RouterReal{p.inv_tokens()} * p.z_scale};
}

/// What dlogits is the gradient of.
RouterReal route_objective(const RouteRow& row, const RouterRule& rule) {
  const RouterRow w = router_weights(row.logits, row.expert_scale, row.choices, rule);
  const RouterRow p = router_shares(row.logits, rule.score);
  const RouterReal lse = log_sum_exp(row.logits);
  RouterReal sum = row.z / 2 * lse * lse;
  for (size_t j = 0; j < w.size(); ++j) sum += row.dweights[j] * w[j];
  for (size_t e = 0; e < row.balance.size(); ++e) sum += row.balance[e] * p[e];
  return sum;
}

/// The central difference of the objective by a number of the row.
RouterReal central_difference(RouteRow& row, const RouterRule& rule, RouterReal& number) {
  constexpr RouterReal h = 1e-5;
  const RouterReal middle = number;
  number = middle + h;
  const RouterReal above = route_objective(row, rule);
  number = middle - h;
  const RouterReal below = route_objective(row, rule);
  number = middle;
  return (above - below) / (2 * h);
}

struct ValueAndSize {
  RouterReal value = 0, size = 0;  ///< the size is the sum of the absolute values of the terms
  void add(RouterReal term, RouterReal term_size) {
    value += term;
    size += term_size;
  }
  void add(RouterReal term) { add(term, std::abs(term)); }
};

/// The gradient of the objective by the logits of a row.
std::vector<ValueAndSize> logit_gradient_of(const RouteRow& row, const RouterRule& rule) {
  const size_t E = row.logits.size();
  const RouterRow s = router_scores(row.logits, rule.score), q = router_scores(row.logits, RouterScore::kSoftmax);
  const bool softmax = rule.score == RouterScore::kSoftmax;
  const RouterReal total = router_sum(s), lse = log_sum_exp(row.logits);
  // By the scores, first of the weights.
  std::vector<ValueAndSize> ds(E), dlogits(E);
  const RouterReal divisor = router_divisor(s, row.choices, rule);
  RouterReal chosen = 0;
  for (const int32_t e : row.choices) chosen += s[static_cast<size_t>(e)];
  ValueAndSize coupling;
  for (size_t j = 0; j < row.choices.size(); ++j) {
    const auto e = static_cast<size_t>(row.choices[j]);
    const RouterReal by_share = row.dweights[j] * rule.scale * (row.expert_scale.empty() ? 1 : row.expert_scale[e]);
    ds[e].add(by_share / divisor);
    coupling.add(by_share * s[e] / (divisor * divisor));
  }
  if (rule.renormalize && chosen > rule.sum_floor) {
    for (const int32_t e : row.choices) ds[static_cast<size_t>(e)].add(-coupling.value, coupling.size);
  }
  // Then of the balance, p = s / total.
  ValueAndSize mean;
  for (size_t e = 0; e < row.balance.size(); ++e) mean.add(row.balance[e] * s[e] / total);
  for (size_t e = 0; e < row.balance.size(); ++e) {
    ds[e].add(row.balance[e] / total);
    ds[e].add(-mean.value / total, mean.size / total);
  }
  ValueAndSize along;
  for (size_t e = 0; e < E; ++e) along.add(ds[e].value * s[e], ds[e].size * s[e]);
  RouterReal largest = 0;
  for (const RouterReal l : row.logits) largest = std::max(largest, std::abs(l));
  for (size_t e = 0; e < E; ++e) {
    if (softmax) {
      dlogits[e].add(s[e] * ds[e].value, s[e] * ds[e].size);
      dlogits[e].add(-s[e] * along.value, s[e] * along.size);
    } else {
      dlogits[e].add(s[e] * (1 - s[e]) * ds[e].value, s[e] * ds[e].size);
    }
    dlogits[e].add(row.z * lse * q[e], std::abs(row.z) * (largest + std::abs(lse) + 1) * q[e]);
  }
  return dlogits;
}

/// The gradient by expert_scale, without what was there before.
std::vector<ValueAndSize> scale_gradient_of(const RouteBackwardProblem& p) {
  std::vector<ValueAndSize> sums(static_cast<size_t>(p.logits.cols()));
  for (int64_t n = 0; n < p.logits.rows(); ++n) {
    const RouteRow row = route_row_of(p, n);
    const RouterRow shares = router_weights(row.logits, {}, row.choices, p.rule);
    for (size_t j = 0; j < shares.size(); ++j)
      sums[static_cast<size_t>(row.choices[j])].add(row.dweights[j] * shares[j]);
  }
  return sums;
}

class RoutingBackwardTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  /// {dlogits, dexpert_scale}, the latter started with `before`.
  Outputs backward(Backend& backend, const RouteBackwardProblem& p, const HostMatrix& before = {},
                   GradMode mode = GradMode::kOverwrite) {
    Outputs out = {HostMatrix(p.logits.dtype(), p.logits.rows(), p.logits.cols(), 1), before};
    backend.route_backward(p.call(out[0].mut(), out[1].mut(), mode), backends_.stream());
    backends_.finish();
    return out;
  }
  void expect_gradient(const RouteBackwardProblem& p);
  void expect_by_hand(const RouteBackwardProblem& p, const std::vector<double>& expected);
};

void RoutingBackwardTest::expect_gradient(const RouteBackwardProblem& p) {
  const DType acc = p.logits.dtype();
  const int64_t N = p.logits.rows(), E = p.logits.cols();
  std::vector<std::vector<ValueAndSize>> expected;
  for (int64_t n = 0; n < N; ++n) expected.push_back(logit_gradient_of(route_row_of(p, n), p.rule));
  std::vector<RouterRow> differences(static_cast<size_t>(N));
  for (int64_t n = 0; n < N && acc == DType::kFloat64; ++n) {
    RouteRow row = route_row_of(p, n);
    for (RouterReal& l : row.logits) differences[static_cast<size_t>(n)].push_back(central_difference(row, p.rule, l));
  }
  const std::vector<ValueAndSize> scales = scale_gradient_of(p);
  const HostMatrix before = p.expert_scale.present() ? HostMatrix(acc, 1, E) : HostMatrix();
  backends_.each([&](Backend& backend) { return backward(backend, p, before); },
                 [&](const Outputs& out) {
                   double error = 0;
                   for (int64_t n = 0; n < N; ++n) {
                     const auto row = static_cast<size_t>(n);
                     const double row_error = router_error(acc, router_row(p.logits, n));
                     error = std::max(error, row_error);
                     for (int64_t e = 0; e < E; ++e) {
                       const auto [value, size] = expected[row][static_cast<size_t>(e)];
                       ASSERT_NEAR(out[0].at(n, e), static_cast<double>(value),
                                   row_error * static_cast<double>(size) + kRouterUnderflow)
                           << n << " " << e;
                       if (acc != DType::kFloat64) continue;
                       // The difference's own error is h^2 / 6 of a third derivative, about 1e-10 of the terms.
                       ASSERT_NEAR(out[0].at(n, e), static_cast<double>(differences[row][static_cast<size_t>(e)]),
                                   1e-8 * static_cast<double>(size) + 1e-12)
                           << n << " " << e;
                     }
                   }
                   if (!p.expert_scale.present()) return;
                   // An expert has at most one choice of each row.
                   error += unit_roundoff(acc) * 2 * std::sqrt(static_cast<double>(N));
                   for (int64_t e = 0; e < E; ++e) {
                     const auto [value, size] = scales[static_cast<size_t>(e)];
                     ASSERT_NEAR(out[1].at(e), static_cast<double>(value),
                                 error * static_cast<double>(size) + kRouterUnderflow);
                   }
                 });
}

TEST_F(RoutingBackwardTest, IsTheGradient) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (size_t at = 0; at < kRouteBackwardCases.size(); ++at) {
      for (size_t rule = 0; rule < kRouterRules.size(); ++rule) {
        // Each rule meets each of the four combinations of balance and z-loss.
        const RouteGradientOptions options{.balance = (at + rule) % 2 == 1,
                                           .z = (at + rule) / 2 % 2 == 1,
                                           .scalars = (at + rule) / 2 % 4 == 1,
                                           .expert_scale = static_cast<int64_t>((at + rule / 2) % 3)};
        const RouteBackwardCase& c = kRouteBackwardCases[at];
        SCOPED_TRACE(str_cat(name_of(acc), " [", c.N, ", ", c.E, "] k ", c.k, " rule ", rule, " balance ",
                             options.balance, " z ", options.z, " scale ", options.expert_scale));
        expect_gradient(make_route_backward(acc, c, kRouterRules[rule], options));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The choice of groups has no gradient: the rule's groups change nothing.
TEST_F(RoutingBackwardTest, GroupsHaveNoGradient) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    RouteBackwardProblem p = make_route_backward(acc, {5, 12, 3, 2}, kRouterRules[2], {.balance = true, .z = true});
    p.rule.groups = 4;
    p.rule.top_groups = 1;
    p.rule.group_score = GroupScore::kTopTwo;
    expect_gradient(p);
  }
}

void RoutingBackwardTest::expect_by_hand(const RouteBackwardProblem& p, const std::vector<double>& expected) {
  backends_.each([&](Backend& backend) { return backward(backend, p); },
                 [&](const Outputs& out) {
                   for (size_t i = 0; i < expected.size(); ++i)
                     EXPECT_NEAR(out[0].at(static_cast<int64_t>(i)), expected[i],
                                 8 * router_error(p.logits.dtype(), router_row(p.logits, 0)))
                         << i;
                 });
}

TEST_F(RoutingBackwardTest, ByHand) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(name_of(acc));
    // Three rows of two equal logits: p = 1/2, dp_0/dl_0 = 1/4. Rows 0 and 1 have the first row of the balance.
    RouteBackwardProblem p{.logits = HostMatrix(acc, 3, 2),
                           .choices = HostMatrix(DType::kInt32, 3, 1),
                           .dweights = HostMatrix(acc, 3, 1),
                           .balance = HostMatrix(acc, 2, 2),
                           .balance_rows = 2};
    p.logits.fill(0);
    p.choices.fill(1);
    p.dweights.fill(0);
    for (int64_t i = 0; i < 4; ++i) p.balance.set(i, std::array<double, 4>{3, 1, 2, 10}[static_cast<size_t>(i)]);
    expect_by_hand(p, {0.5, -0.5, 0.5, -0.5, -2, 2});
    p.rule.score = RouterScore::kSigmoid;  // s = 1/2, p = 1/2, dp_0/dl_0 = 1/8
    expect_by_hand(p, {0.25, -0.25, 0.25, -0.25, -1, 1});
    // z lse dlse/dl, whatever the score. With scalars it is scaled, and the balance, which has its factor, is not.
    p.z_scale = 3;
    const double z = 1.5 * std::log(2.0);
    expect_by_hand(p, {z + 0.25, z - 0.25, z + 0.25, z - 0.25, z - 1, z + 1});
    p.with_scalars = true;
    *p.scalars = {.inv_valid_tokens = 100, .inv_tokens = 0.5};
    expect_by_hand(p, {z / 2 + 0.25, z / 2 - 0.25, z / 2 + 0.25, z / 2 - 0.25, z / 2 - 1, z / 2 + 1});

    // Scores 1/2 and 3/4, sum 5/4, both chosen, and the gradient of the first weight alone.
    RouteBackwardProblem q{.rule = {.score = RouterScore::kSigmoid, .renormalize = true, .sum_floor = 2, .scale = 4},
                           .logits = router_vector(acc, {0, std::log(3.0)}),
                           .choices = router_vector(DType::kInt32, {1, 0}),
                           .dweights = router_vector(acc, {0, 1})};
    expect_by_hand(q, {4 * 0.25 / 2, 0});  // below the floor: no coupling
    q.rule.sum_floor = 1;
    expect_by_hand(q, {4 * 0.25 * (0.75 / 1.5625), -4 * 0.1875 * (0.5 / 1.5625)});
    q.rule.sum_floor = 0;
    q.rule.sum_eps = 0.25;  // s / (sum + 1/4)
    expect_by_hand(q, {4 * 0.25 * (1 / 2.25), -4 * 0.1875 * (0.5 / 2.25)});
    q.expert_scale = router_vector(acc, {2, 5});
    expect_by_hand(q, {8 * 0.25 * (1 / 2.25), -8 * 0.1875 * (0.5 / 2.25)});
  }
}

TEST_F(RoutingBackwardTest, ChosenScoresMayUnderflow) {
  const double first = 1 / (1 + std::exp(-1.0)), product = 2 * first * (1 - first);
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const double low : {-200.0, -800.0}) {
      SCOPED_TRACE(str_cat(name_of(acc), " ", low));
      RouteBackwardProblem p{.rule = {.renormalize = true, .scale = 2},
                             .logits = router_vector(acc, {0, low, low - 1}),
                             .choices = router_vector(DType::kInt32, {1, 2}),
                             .dweights = router_vector(acc, {3, 1})};
      expect_by_hand(p, {0, 2 * product, -2 * product});
      p.expert_scale = router_vector(acc, {1, 1, 1});
      backends_.each([&](Backend& backend) { return backward(backend, p, HostMatrix(acc, 1, 3)); },
                     [&](const Outputs& out) {
                       const double error = 8 * router_error(acc, router_row(p.logits, 0));
                       EXPECT_EQ(out[1].at(0), 0);
                       EXPECT_NEAR(out[1].at(1), 3 * 2 * first, error);
                       EXPECT_NEAR(out[1].at(2), 1 * 2 * (1 - first), error);
                     });
    }
  }
}

// A row of sigmoids that all underflow has no gradient, a row with NaN has only NaN, and neither changes another row.
TEST_F(RoutingBackwardTest, UnderflowAndNanStayInTheirRows) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      for (const bool balance : {false, true}) {
        SCOPED_TRACE(str_cat(name_of(acc), " ", name_of(score), " ", balance));
        RouteBackwardProblem p =
            make_route_backward(acc, {4, 5, 2, 2}, {.score = score, .renormalize = true}, {.balance = balance});
        for (int64_t e = 0; e < 5; ++e) p.logits.set(1, e, score == RouterScore::kSigmoid ? -1000.0 - e : 0.5);
        const std::vector<ValueAndSize> first = logit_gradient_of(route_row_of(p, 0), p.rule);
        p.logits.set(2, 4, std::numeric_limits<double>::quiet_NaN());
        backends_.each([&](Backend& backend) { return backward(backend, p); },
                       [&](const Outputs& out) {
                         const double error = 8 * router_error(acc, router_row(p.logits, 0));
                         for (int64_t e = 0; e < 5; ++e) {
                           const ValueAndSize& expected = first[static_cast<size_t>(e)];
                           EXPECT_NEAR(out[0].at(0, e), static_cast<double>(expected.value),
                                       error * static_cast<double>(expected.size));
                           if (score == RouterScore::kSigmoid) {
                             EXPECT_EQ(out[0].at(1, e), 0);
                           }
                           EXPECT_TRUE(std::isnan(out[0].at(2, e)));
                           EXPECT_TRUE(std::isfinite(out[0].at(3, e)));
                         }
                       });
      }
    }
  }
}

// Enough rows for several threads and blocks, and experts without a choice.
TEST_F(RoutingBackwardTest, ScaleGradientsInEveryMode) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t N : {9, 1500}) {
      for (const RouterRule& rule : {kRouterRules[0], kRouterRules[8]}) {
        RouteBackwardProblem p = make_route_backward(acc, {N, 11, 2, 1}, rule, {.expert_scale = 1});
        for (int64_t i = 0; i < N * 2; ++i)
          if (p.choices.at(i) == 5) p.choices.set(i, p.choices.at(i % 2 == 0 ? i + 1 : i - 1) == 6 ? 7 : 6);
        const std::vector<ValueAndSize> expected = scale_gradient_of(p);
        const HostMatrix before = random_matrix(acc, 1, 11, 6);
        for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAccumulate, GradMode::kSkip}) {
          SCOPED_TRACE(str_cat(name_of(acc), " N ", N, " mode ", static_cast<int>(mode)));
          const HostMatrix start = mode == GradMode::kOverwrite ? HostMatrix(acc, 1, 11) : before;
          backends_.each(
              [&](Backend& backend) {
                const Outputs again = backward(backend, p, start, mode);
                Outputs out = backward(backend, p, start, mode);
                EXPECT_TRUE(out == again) << "not the same bits";
                const Outputs alone = backward(backend, p, {}, mode);  // absent in any mode
                EXPECT_TRUE(alone[0] == out[0]);
                return out;
              },
              [&](const Outputs& out) {
                if (mode == GradMode::kSkip) {
                  EXPECT_TRUE(out[1] == before);
                  return;
                }
                double error = unit_roundoff(acc) * (8 + 2 * std::sqrt(static_cast<double>(N)));
                for (int64_t n = 0; n < N; ++n) error = std::max(error, router_error(acc, router_row(p.logits, n)));
                for (int64_t e = 0; e < 11; ++e) {
                  const double old = mode == GradMode::kAccumulate ? before.at(e) : 0;
                  const auto [value, size] = expected[static_cast<size_t>(e)];
                  ASSERT_NEAR(out[1].at(e), old + static_cast<double>(value),
                              error * (std::abs(old) + static_cast<double>(size)));
                }
                EXPECT_EQ(out[1].at(5), mode == GradMode::kAccumulate ? before.at(5) : 0) << "never chosen";
              });
        }
      }
    }
  }
}

TEST_F(RoutingBackwardTest, ViolationsAreBugs) {
  RouteBackwardProblem p =
      make_route_backward(DType::kFloat32, {5, 6, 2, 2}, {}, {.balance = true, .scalars = true, .expert_scale = 2});
  HostMatrix dlogits(DType::kFloat32, 5, 6), dscale(DType::kFloat32, 1, 6), narrow(DType::kFloat32, 5, 5);
  HostMatrix fp64(DType::kFloat64, 5, 6), fp64_vector(DType::kFloat64, 1, 6), three_rows(DType::kFloat32, 3, 5);
  const HostMatrix gaps(DType::kFloat32, 5, 2, 1), int_gaps(DType::kInt32, 5, 2, 1);
  const HostMatrix bf16 = random_matrix(DType::kBFloat16, 5, 6, 1), bf16_dweights(DType::kBFloat16, 5, 2);
  HostMatrix bf16_dlogits(DType::kBFloat16, 5, 6);
  const DeviceStruct<ClipState> other;
  const auto call = [&](const auto& change) {
    RouteBackward args = p.call(dlogits.mut(), dscale.mut(), GradMode::kOverwrite);
    change(args);
    backends_.one().route_backward(args, backends_.stream());
    backends_.finish();
  };
  using Args = RouteBackward;
  EXPECT_NO_THROW(call([](Args&) {}));
  const auto all_bf16 = [&](Args& a) {
    a = {.logits = bf16.view(),
         .choices = p.choices.view(),
         .dweights = bf16_dweights.view(),
         .dlogits = bf16_dlogits.mut()};
  };
  EXPECT_THROW(call(all_bf16), Bug);
  EXPECT_THROW(call([&](Args& a) { a.expert_scale = fp64_vector.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.expert_scale = {}; }), Bug) << "dexpert_scale without expert_scale";
  EXPECT_THROW(call([&](Args& a) { a.choices = int_gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices.rows = 4; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.dweights = gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.dweights = {}; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.balance_rows = 0; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.balance_rows = 3; }), Bug) << "three rows of balance for two sequences";
  EXPECT_THROW(call([&](Args& a) { a.balance = three_rows.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.balance = fp64.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.dlogits = narrow.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.dlogits = fp64.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.dexpert_scale = fp64_vector.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.scalars = other.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule.groups = 4; }), Bug);
}

}  // namespace
}  // namespace ashlar::test
