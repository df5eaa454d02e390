#include <gtest/gtest.h>

#include "tests/kernels/cases/router_reference.h"
#include "tests/support/every_backend.h"

namespace ashlar::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct RouteCase {
  int64_t N, E, k, groups = 1, top_groups = 1;
};

/// Odd numbers of experts, more rows than a block has, k up to all experts.
constexpr std::array<RouteCase, 13> kRouteCases = {
    RouteCase{1, 1, 1}, {3, 3, 1},    {5, 7, 3},    {7, 8, 8},   {33, 31, 2},  {9, 33, 8},  {5, 64, 6},
    {17, 127, 5},       {11, 128, 4}, {13, 257, 7}, {2, 33, 33}, {700, 16, 4}, {130, 65, 1}};

constexpr std::array<RouteCase, 8> kGroupCases = {RouteCase{5, 8, 2, 4, 2}, {3, 9, 4, 3, 2},   {7, 32, 8, 8, 4},
                                                  {11, 64, 6, 8, 3},        {2, 256, 8, 8, 4}, {4, 12, 6, 2, 1},
                                                  {3, 15, 5, 5, 5},         {5, 4, 1, 4, 1}};

/// Something to choose from: groups or experts. `size` bounds the terms of the value; 0 for a value without rounding.
struct Ranked {
  RouterReal value, size;
  int32_t index;
};

/// In descending order of values, NaN last, ties in ascending order of the index.
void sort_ranked(std::vector<Ranked>& all) {
  std::stable_sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) {
    return std::isnan(b.value) ? !std::isnan(a.value) : a.value > b.value;
  });
}

/// The smallest distance, relative to the sizes, of two neighbours of which the first is among the `taken` best.
RouterReal margin_of(const std::vector<Ranked>& ranked, int64_t taken) {
  RouterReal margin = kInfinity;
  for (size_t i = 0; i + 1 < ranked.size() && i < static_cast<size_t>(taken); ++i) {
    const RouterReal size = ranked[i].size + ranked[i + 1].size;
    if (size > 0) margin = std::min(margin, (ranked[i].value - ranked[i + 1].value) / size);
  }
  return margin;
}

struct RowChoice {
  RouterChoices experts{};
  RouterReal margin = 0;  ///< of all decisions
};

RowChoice choose_experts(const RouterRow& logits, const RouterRow& bias, const RouterRule& rule, int64_t k) {
  const int64_t E = std::ssize(logits), width = E / rule.groups;
  const RouterRow s = router_scores(logits, rule.score);
  std::vector<std::vector<Ranked>> members(static_cast<size_t>(rule.groups));
  for (int64_t e = 0; e < E; ++e) {
    const auto i = static_cast<size_t>(e);
    Ranked expert{logits[i], 0, static_cast<int32_t>(e)};
    if (!bias.empty() || (rule.groups > 1 && rule.group_score == GroupScore::kTopTwo)) {
      const RouterReal added = bias.empty() ? 0 : bias[i];
      expert = {s[i] + added, s[i] + std::abs(added), expert.index};
    }
    members[static_cast<size_t>(e / width)].push_back(expert);
  }
  std::vector<Ranked> groups, candidates;
  for (const std::vector<Ranked>& group : members) {
    std::vector<Ranked> best = group;
    sort_ranked(best);
    Ranked value{best[0].value, best[0].size, static_cast<int32_t>(groups.size())};
    if (rule.group_score == GroupScore::kTopTwo && rule.groups > 1) {
      value.value += best[1].value;
      value.size += best[1].size;
    }
    groups.push_back(value);
  }
  sort_ranked(groups);
  RowChoice choice{.margin = rule.top_groups < rule.groups ? margin_of(groups, rule.top_groups) : kInfinity};
  groups.resize(static_cast<size_t>(rule.top_groups));
  std::sort(groups.begin(), groups.end(), [](const Ranked& a, const Ranked& b) { return a.index < b.index; });
  for (const Ranked& group : groups) {
    const std::vector<Ranked>& more = members[static_cast<size_t>(group.index)];
    candidates.insert(candidates.end(), more.begin(), more.end());
  }
  sort_ranked(candidates);
  choice.margin = std::min(choice.margin, margin_of(candidates, k));
  for (int64_t j = 0; j < k; ++j) choice.experts.push_back(candidates[static_cast<size_t>(j)].index);
  return choice;
}

/// What route_forward reads. Absent views are empty matrices.
struct RouteProblem {
  RouterRule rule;
  int64_t k = 1;
  HostMatrix logits, bias{}, expert_scale{}, forced{};

  Outputs outputs() const {
    return {HostMatrix(DType::kInt32, logits.rows(), k), HostMatrix(logits.dtype(), logits.rows(), k)};
  }
  RouteForward call(Outputs& out) const {
    return {.logits = logits.view(),
            .selection_bias = bias.view(),
            .expert_scale = expert_scale.view(),
            .forced = forced.view(),
            .choices = out[0].mut(),
            .weights = out[1].mut(),
            .rule = rule};
  }
};

struct RouteOptions {
  bool bias = false, forced = false;
  int64_t expert_scale = 0;  ///< 0: none, 1: storage dtype (bf16 beside fp32), 2: accumulate dtype
};

/// Random logits. A row is drawn again until no rounding of scores can change its choice.
RouteProblem make_route_problem(DType acc, const RouteCase& c, RouterRule rule, const RouteOptions& options) {
  constexpr RouterReal kClear = 2e-5;  // some hundred roundings of fp32
  rule.groups = c.groups;
  rule.top_groups = c.top_groups;
  RouteProblem p{.rule = rule, .k = c.k, .logits = HostMatrix(acc, c.N, c.E, 3)};
  // Most values are negative with a bias: an expert that does not take part must not count as zero.
  if (options.bias) p.bias = random_matrix(acc, 1, c.E, 1, 0, -1, 0.3);
  if (options.forced) p.forced = random_choices(c.N, c.E, c.k, 2);
  if (options.expert_scale > 0) {
    const DType storage = acc == DType::kFloat32 && options.expert_scale == 1 ? DType::kBFloat16 : acc;
    p.expert_scale = random_matrix(storage, 1, c.E, 3, 0, 1, 0.3);
  }
  std::mt19937_64 generator(4);
  std::normal_distribution<double> normal(0, 2);
  for (int64_t n = 0; n < c.N; ++n) {
    int tries = 0;
    do {
      for (int64_t e = 0; e < c.E; ++e) p.logits.set(n, e, normal(generator));
    } while (choose_experts(router_row(p.logits, n), router_row(p.bias, 0), p.rule, c.k).margin < kClear &&
             ++tries < 1000);
    EXPECT_LT(tries, 1000) << "no clear choice";
  }
  return p;
}

struct ByHand {
  RouterChoices choices;
  std::vector<double> weights{};  ///< empty: any
};
struct RowExtras {
  std::vector<double> bias{}, expert_scale{};
  RouterChoices forced{};
};

class RoutingTest : public ::testing::Test {
 protected:
  EveryBackend backends_;

  Outputs route(Backend& backend, const RouteProblem& p) {
    Outputs out = p.outputs();
    backend.route_forward(p.call(out), backends_.stream());
    backends_.finish();
    out[1] = with_one_nan(out[1]);
    return out;
  }
  void expect_reference(const RouteProblem& p);
  void expect_row(const std::vector<double>& logits, const RouterRule& rule, const ByHand& expected,
                  const RowExtras& extras = {});
};

void RoutingTest::expect_reference(const RouteProblem& p) {
  std::vector<RouterChoices> choices;
  std::vector<RouterRow> weights;
  for (int64_t n = 0; n < p.logits.rows(); ++n) {
    const RouterRow logits = router_row(p.logits, n);
    choices.push_back(p.forced.present() ? router_choices(p.forced, n)
                                         : choose_experts(logits, router_row(p.bias, 0), p.rule, p.k).experts);
    weights.push_back(router_weights(logits, router_row(p.expert_scale, 0), choices.back(), p.rule));
  }
  backends_.each([&](Backend& backend) { return route(backend, p); },
                 [&](const Outputs& out) {
                   for (int64_t n = 0; n < p.logits.rows(); ++n) {
                     const auto row = static_cast<size_t>(n);
                     const double error = router_error(p.logits.dtype(), router_row(p.logits, n));
                     ASSERT_EQ(router_choices(out[0], n), choices[row]) << "row " << n;
                     for (int64_t j = 0; j < p.k; ++j) {
                       const auto w = static_cast<double>(weights[row][static_cast<size_t>(j)]);
                       ASSERT_NEAR(out[1].at(n, j), w, error * std::abs(w) + kRouterUnderflow) << n << " " << j;
                     }
                   }
                 });
}

/// Routes one row in both dtypes.
void RoutingTest::expect_row(const std::vector<double>& logits, const RouterRule& rule, const ByHand& expected,
                             const RowExtras& extras) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(str_cat(name_of(acc), " first logit ", logits[0], ", first choice ", expected.choices[0]));
    const std::vector<double> forced(extras.forced.begin(), extras.forced.end());
    const RouteProblem p{.rule = rule,
                         .k = std::ssize(expected.choices),
                         .logits = router_vector(acc, logits),
                         .bias = router_vector(acc, extras.bias),
                         .expert_scale = router_vector(acc, extras.expert_scale),
                         .forced = router_vector(DType::kInt32, forced)};
    const double error = router_error(acc, router_row(p.logits, 0));
    backends_.each([&](Backend& backend) { return route(backend, p); },
                   [&](const Outputs& out) {
                     EXPECT_EQ(router_choices(out[0], 0), expected.choices);
                     for (size_t j = 0; j < expected.weights.size(); ++j) {
                       const double got = out[1].at(static_cast<int64_t>(j)), w = expected.weights[j];
                       if (std::isnan(w)) {
                         EXPECT_TRUE(std::isnan(got)) << j << ": " << got;
                       } else {
                         EXPECT_NEAR(got, w, error * std::abs(w) + kRouterUnderflow) << j;
                       }
                     }
                   });
  }
}

std::vector<double> logs_of(std::vector<double> scores) {
  for (double& s : scores) s = std::log(s);
  return scores;
}
/// The logit of a sigmoid.
double logit(double s) { return std::log(s / (1 - s)); }

TEST_F(RoutingTest, ChoicesAndWeightsAreTheRules) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (size_t at = 0; at < kRouteCases.size(); ++at) {
      for (size_t rule = 0; rule < kRouterRules.size(); ++rule) {
        const RouteCase& c = kRouteCases[at];
        const RouteOptions options{.bias = (at + rule) % 3 == 1,
                                   .forced = (at + rule) % 3 == 2,
                                   .expert_scale = static_cast<int64_t>((at + rule / 2) % 3)};
        SCOPED_TRACE(str_cat(name_of(acc), " [", c.N, ", ", c.E, "] k ", c.k, " rule ", rule, " bias ", options.bias,
                             " forced ", options.forced));
        expect_reference(make_route_problem(acc, c, kRouterRules[rule], options));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(RoutingTest, GroupsAreChosenFirst) {
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (size_t at = 0; at < kGroupCases.size(); ++at) {
      for (size_t number = 0; number < kRouterRules.size(); ++number) {
        const RouteCase& c = kGroupCases[at];
        RouterRule rule = kRouterRules[number];
        const bool top_two = (at + number) % 2 == 1 && c.E / c.groups >= 2;
        rule.group_score = top_two ? GroupScore::kTopTwo : GroupScore::kMax;
        const bool bias = (at + number) / 2 % 2 == 1;
        SCOPED_TRACE(str_cat(name_of(acc), " [", c.N, ", ", c.E, "] groups ", c.groups, " rule ", number, " ",
                             name_of(rule.group_score), " bias ", bias));
        expect_reference(make_route_problem(acc, c, rule, {.bias = bias}));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(RoutingTest, WeightsOfASoftmaxByHand) {
  const std::vector<double> logits = logs_of({0.1, 0.2, 0.3, 0.4});
  expect_row(logits, kUnscaled, {{3, 2}, {0.4, 0.3}});
  expect_row(logits, {.renormalize = true}, {{3, 2}, {4 / 7., 3 / 7.}});
  expect_row(logits, {.renormalize = true, .sum_floor = 0.5}, {{3, 2}, {4 / 7., 3 / 7.}});
  expect_row(logits, {.renormalize = true, .sum_floor = 1.4}, {{3, 2}, {4 / 14., 3 / 14.}});
  expect_row(logits, {.renormalize = true, .sum_eps = 0.5}, {{3, 2}, {4 / 12., 3 / 12.}});
  expect_row(logits, {.renormalize = true, .sum_floor = 1.4, .sum_eps = 0.1}, {{3, 2}, {4 / 15., 3 / 15.}});
  expect_row(logits, {.renormalize = true, .sum_floor = 1.4, .scale = 3}, {{3, 2}, {12 / 14., 9 / 14.}});
  expect_row(logits, {.renormalize = false, .sum_floor = 1.4, .sum_eps = 0.1, .scale = 3}, {{3, 2}, {1.2, 0.9}});
  expect_row(logits, kUnscaled, {{3, 2}, {2.8, 1.5}}, {.expert_scale = {2, 3, 5, 7}});
  expect_row(logits, {.renormalize = true}, {{3, 2}, {4., 15 / 7.}}, {.expert_scale = {2, 3, 5, 7}});
  expect_row(logits, {.renormalize = true}, {{0, 2}, {1 / 4., 3 / 4.}}, {.forced = {0, 2}});
  expect_row(logits, kUnscaled, {{1}, {0.2}}, {.bias = {0, 0, 0, 1}, .forced = {1}});
}

TEST_F(RoutingTest, WeightsOfSigmoidsByHand) {
  const std::vector<double> logits = {logit(0.5), logit(0.75), logit(0.9), logit(0.25)};
  const auto rule = [](RouterRule r) {
    r.score = RouterScore::kSigmoid;
    return r;
  };
  expect_row(logits, rule(kUnscaled), {{2, 1}, {0.9, 0.75}});
  expect_row(logits, rule({.renormalize = true}), {{2, 1}, {90 / 165., 75 / 165.}});
  expect_row(logits, rule({.renormalize = true, .sum_floor = 3}), {{2, 1}, {0.3, 0.25}});
  expect_row(logits, rule({.renormalize = true, .sum_eps = 0.35, .scale = 2}), {{2, 1}, {0.9, 0.75}});
  expect_row(logits, rule({.renormalize = true}), {{3}, {1}}, {.forced = {3}});
}

TEST_F(RoutingTest, TheSelectionBiasChangesChoicesOnly) {
  const std::vector<double> logits = logs_of({0.1, 0.2, 0.3, 0.4});
  expect_row(logits, kUnscaled, {{0, 3}, {0.1, 0.4}}, {.bias = {1, 0, 0, 0}});
  expect_row(logits, {.renormalize = true}, {{0, 3}, {0.2, 0.8}}, {.bias = {1, 0, 0, 0}});
  // Added to scores, not to logits, whose distance is larger.
  expect_row(logits, kUnscaled, {{0}, {0.1}}, {.bias = {0.35, 0, 0, 0}});
  expect_row({logit(0.5), logit(0.75), logit(0.9)}, {.score = RouterScore::kSigmoid, .renormalize = false},
             {{1, 2, 0}, {0.75, 0.9, 0.5}}, {.bias = {-0.1, 0.2, 0}});
}

TEST_F(RoutingTest, GroupsByHand) {
  const std::vector<double> logits = logs_of({0.30, 0.02, 0.20, 0.18, 0.16, 0.14});  // sums of two: 0.32, 0.38, 0.30
  RouterRule rule{.renormalize = false, .group_score = GroupScore::kMax, .groups = 3, .top_groups = 1};
  expect_row(logits, rule, {{0, 1}, {0.30, 0.02}});
  rule.top_groups = 2;
  expect_row(logits, rule, {{0, 2, 3, 1}});
  rule = {.renormalize = false, .group_score = GroupScore::kTopTwo, .groups = 3, .top_groups = 1};
  expect_row(logits, rule, {{2, 3}, {0.20, 0.18}});
  rule.top_groups = 2;
  expect_row(logits, rule, {{0, 2, 3, 1}});
  // The two best of three, not all: sums of three would choose the second group.
  expect_row(logs_of({0.22, 0.22, 0.02, 0.18, 0.18, 0.18}),
             {.renormalize = false, .group_score = GroupScore::kTopTwo, .groups = 2, .top_groups = 1}, {{0, 1, 2}});
  // Sums of scores, not of logits, which would choose the second group.
  expect_row(logs_of({0.6, 1e-6, 0.2, 0.199}),
             {.renormalize = false, .group_score = GroupScore::kTopTwo, .groups = 2, .top_groups = 1}, {{0, 1}});
  for (const GroupScore score : {GroupScore::kMax, GroupScore::kTopTwo}) {
    // Groups are chosen with the bias. The values of those that take part are below zero, and they are all there is.
    rule = {.renormalize = false, .group_score = score, .groups = 2, .top_groups = 1};
    expect_row(logs_of({0.1, 0.2, 0.3, 0.4}), rule, {{1, 0}, {0.2, 0.1}}, {.bias = {-5, -5, -6, -6}});
    rule.score = RouterScore::kSigmoid;
    expect_row({1, 2, 3, 4}, rule, {{1, 0}}, {.bias = {-5, -5, -7, -7}});
  }
  // A value may be as small as can be, or NaN: it still comes before those of groups that do not take part.
  rule = {.renormalize = false, .group_score = GroupScore::kMax, .groups = 2, .top_groups = 1};
  expect_row({4, 3, 5, -kInfinity}, rule, {{2, 3}});
  expect_row({4, 3, 5, 1}, rule, {{2, 3}}, {.bias = {0, 0, 0, -kInfinity}});
  expect_row({4, 3, 5, kNan}, rule, {{2, 3}, {kNan, kNan}});
  expect_row({kNan, 3, 2, 1}, rule, {{1, 0}, {kNan, kNan}});
}

TEST_F(RoutingTest, TiesGoToTheLowerIndex) {
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    const RouterRule rule{.score = score, .renormalize = true};
    expect_row(std::vector<double>(257, 0.7), rule, {{0, 1, 2, 3, 4, 5, 6, 7}, std::vector<double>(8, 0.125)});
    expect_row({-0.0, 0.0, -0.0, 0.0}, rule, {{0, 1, 2, 3}});
    expect_row({-kInfinity, -kInfinity, -kInfinity, -kInfinity}, rule, {{0, 1, 2, 3}});
    expect_row({1, 2, 1, 2, 2}, rule, {{1, 3, 4, 0}});
    expect_row({1, 2, 1, 2, 2}, rule, {{1, 3, 4, 0}}, {.bias = std::vector<double>(5, 0.5)});
    RouterRule grouped{
        .score = score, .renormalize = false, .group_score = GroupScore::kMax, .groups = 3, .top_groups = 2};
    expect_row({1, 1, 1, 1, 1, 1}, grouped, {{0, 1, 2, 3}});
    expect_row({1, 3, 3, 2, 3, 2}, grouped, {{1, 2, 3, 0}});
    grouped.group_score = GroupScore::kTopTwo;
    expect_row({1, 1, 1, 1, 1, 1}, grouped, {{0, 1, 2, 3}});
    // The second group is the better one; its expert still comes after the equal one of the first.
    expect_row({3, 1, 3, 2, 0, 0}, grouped, {{0, 2, 3, 1}});
  }
  // Rows of three values: long runs of equal ones, which cross the lanes of a warp and the ends of vectors.
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    RouteProblem p{.rule = kUnscaled, .k = 8, .logits = HostMatrix(acc, 40, 67, 1)};
    std::mt19937_64 generator(1);
    for (int64_t i = 0; i < 40 * 67; ++i) p.logits.set(i, static_cast<double>(generator() % 16 / 7));
    expect_reference(p);
  }
}

TEST_F(RoutingTest, SaturatedSigmoidsAreOrderedByTheirLogits) {
  const RouterRule rule{.score = RouterScore::kSigmoid, .renormalize = false};
  expect_row({40, 50, 45, 60}, rule, {{3, 1, 2}, {1, 1, 1}});
  expect_row({-300, -200, -250}, rule, {{1, 2, 0}});
  expect_row({40, 50, 45, 60, 1, 2},
             {.score = RouterScore::kSigmoid,
              .renormalize = false,
              .group_score = GroupScore::kMax,
              .groups = 3,
              .top_groups = 1},
             {{3, 2}});
  // With a bias, the scores themselves are compared: all are 1.
  expect_row({40, 50, 45, 60}, rule, {{0, 1, 2}, {1, 1, 1}}, {.bias = {0, 0, 0, 0}});
  const RouterRule with_eps{.score = RouterScore::kSigmoid, .renormalize = true, .sum_eps = 1e-20};
  expect_row({-300, -200, -250}, with_eps, {{1, 2}, {0, 0}});
}

TEST_F(RoutingTest, ChosenScoresMayUnderflow) {
  const double e = std::exp(-1.0), first = 2 / (1 + e), second = 2 * e / (1 + e);
  const RouterRule rule{.renormalize = true, .scale = 2};
  for (const double low : {-200.0, -800.0}) {
    expect_row({0, low, low - 1}, rule, {{1, 2}, {first, second}}, {.forced = {1, 2}});
    expect_row({0, low, low - 1}, rule, {{2, 1}, {3 * second, first}}, {.expert_scale = {1, 1, 3}, .forced = {2, 1}});
    expect_row({0, low, low - 1}, rule, {{1, 2}, {first, second}}, {.bias = {-5, 1, 1}});
    expect_row({0, low, low - 1}, {.renormalize = false, .scale = 2}, {{1, 2}, {0, 0}}, {.forced = {1, 2}});
    expect_row({0, low, low - 1}, {.renormalize = true, .sum_floor = 0.5}, {{1, 2}, {0, 0}}, {.forced = {1, 2}});
  }
}

TEST_F(RoutingTest, SigmoidsThatAllUnderflowHaveNoWeight) {
  const RouterRule rule{.score = RouterScore::kSigmoid, .renormalize = true};
  expect_row({-2000, -1000, -1500}, rule, {{1, 2}, {0, 0}});
  expect_row({-2000, -1000, -1500}, rule, {{0, 1}, {0, 0}}, {.bias = {0, 0, 0}});
  expect_row({-2000, 0, -1500}, rule, {{0, 2}, {0, 0}}, {.forced = {0, 2}});
  expect_row({-2000, 0, -1500}, rule, {{1, 2}, {1, 0}});
}

TEST_F(RoutingTest, TheScoreOfOneGroupHasNoEffect) {
  const RouterRule rule{.score = RouterScore::kSigmoid, .renormalize = false, .group_score = GroupScore::kTopTwo};
  expect_row({40, 50, 45, 60}, rule, {{3, 1, 2}, {1, 1, 1}});
  // Of several groups, scores are compared even if all take part.
  RouterRule two = rule;
  two.groups = two.top_groups = 2;
  expect_row({40, 50, 45, 60}, two, {{0, 1, 2}, {1, 1, 1}});
}

TEST_F(RoutingTest, NanIsChosenLastAndStaysInItsRow) {
  const std::vector<double> row = {1, 2, 3, 0, -1, -kInfinity};
  for (const DType acc : {DType::kFloat32, DType::kFloat64}) {
    for (const RouterRule& rule : kRouterRules) {
      for (const bool bias : {false, true}) {
        for (const int64_t groups : {1, 3}) {
          RouteProblem p{.rule = rule, .k = groups == 1 ? 6 : 3, .logits = HostMatrix(acc, 5, 6, 1)};
          p.rule.groups = groups;
          p.rule.top_groups = std::min<int64_t>(groups, 2);
          if (bias) p.bias = router_vector(acc, std::vector<double>(6, 0.0));
          for (int64_t n = 0; n < 5; ++n)
            for (int64_t c = 0; c < 6; ++c) p.logits.set(n, c, n == 2 ? kNan : row[static_cast<size_t>(c)]);
          p.logits.set(1, 1, kNan);
          p.logits.set(3, 5, -kNan);
          backends_.each([&](Backend& backend) { return route(backend, p); },
                         [&](const Outputs& out) {
                           for (int64_t n = 0; n < 5; ++n) {
                             RouterChoices sorted = router_choices(out[0], n);
                             std::sort(sorted.begin(), sorted.end());
                             EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << "row " << n;
                             EXPECT_TRUE(sorted.front() >= 0 && sorted.back() < 6) << "row " << n;
                             for (int64_t j = 0; j < p.k; ++j)
                               EXPECT_EQ(std::isnan(out[1].at(n, j)), n >= 1 && n <= 3) << n << " " << j;
                           }
                           for (int64_t j = 0; j < p.k; ++j) EXPECT_EQ(out[1].at(0, j), out[1].at(4, j)) << j;
                           if (groups > 1 || (bias && rule.score == RouterScore::kSoftmax)) return;
                           EXPECT_EQ(router_choices(out[0], 0), (RouterChoices{2, 1, 0, 3, 4, 5}));
                           EXPECT_EQ(router_choices(out[0], 1), (RouterChoices{2, 0, 3, 4, 5, 1}));
                           EXPECT_EQ(router_choices(out[0], 3), (RouterChoices{2, 1, 0, 3, 4, 5}));
                           EXPECT_EQ(router_choices(out[0], 4), (RouterChoices{2, 1, 0, 3, 4, 5}));
                         });
        }
      }
    }
  }
  // A logit that nobody chooses makes all weights NaN, also those that do not depend on it.
  expect_row({1, kNan, 3}, {.score = RouterScore::kSigmoid, .renormalize = false}, {{2, 0}, {kNan, kNan}});
  expect_row({1, kNan, 3}, {.score = RouterScore::kSigmoid, .renormalize = false}, {{2, 0}, {kNan, kNan}},
             {.bias = {0, 0, 0}});
  expect_row({1, kNan, 3}, {.renormalize = true}, {{0, 2}, {kNan, kNan}}, {.forced = {0, 2}});
}

TEST_F(RoutingTest, InfiniteLogits) {
  const double e = std::exp(1.0);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (const bool renormalize : {false, true})
    expect_row({1, -kInfinity, 2}, {.renormalize = renormalize}, {{2, 0, 1}, {e / (1 + e), 1 / (1 + e), 0}});
  expect_row({1, -kInfinity, 2}, {.score = RouterScore::kSigmoid, .renormalize = false},
             {{2, 0, 1}, {sigmoid(2), sigmoid(1), 0}});
  expect_row({1, kInfinity, 2}, {.score = RouterScore::kSigmoid, .renormalize = false},
             {{1, 2, 0}, {1, sigmoid(2), sigmoid(1)}});
  expect_row({1, kInfinity, 2}, kUnscaled, {{1, 2, 0}});
}

TEST_F(RoutingTest, ViolationsAreBugs) {
  const HostMatrix two_rows = random_matrix(DType::kFloat32, 2, 6, 1), bf16 = random_matrix(DType::kBFloat16, 2, 6, 1);
  const HostMatrix vector = random_matrix(DType::kFloat32, 1, 6, 2), wide = random_matrix(DType::kFloat64, 1, 6, 2);
  const HostMatrix forced = random_choices(2, 6, 2, 3), short_vector = random_matrix(DType::kFloat32, 1, 5, 2);
  HostMatrix choices(DType::kInt32, 2, 2), gaps(DType::kInt32, 2, 2, 1), many(DType::kInt32, 2, 7);
  HostMatrix weights(DType::kFloat32, 2, 2), weight_gaps(DType::kFloat32, 2, 2, 1), fp64(DType::kFloat64, 2, 2);
  HostMatrix many_weights(DType::kFloat32, 2, 7), bf16_weights(DType::kBFloat16, 2, 2);
  const auto call = [&](const auto& change) {
    RouteForward args{.logits = two_rows.view(),
                      .selection_bias = vector.view(),
                      .expert_scale = vector.view(),
                      .forced = forced.view(),
                      .choices = choices.mut(),
                      .weights = weights.mut(),
                      .rule = {.groups = 3, .top_groups = 2}};
    change(args);
    backends_.one().route_forward(args, backends_.stream());
    backends_.finish();
  };
  using Args = RouteForward;
  EXPECT_NO_THROW(call([](Args&) {}));
  const auto all_bf16 = [&](Args& a) {
    a = {.logits = bf16.view(), .choices = choices.mut(), .weights = bf16_weights.mut()};
  };
  EXPECT_THROW(call(all_bf16), Bug);
  EXPECT_THROW(call([&](Args& a) { a.logits = {}; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.selection_bias = wide.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.selection_bias = short_vector.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.expert_scale = wide.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.expert_scale = short_vector.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.forced = many.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.forced = gaps.view(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices = gaps.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.choices = weights.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.weights = weight_gaps.mut(); }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.weights = fp64.mut(); }), Bug);
  const auto none_of_six = [&](Args& a) {
    a = {.logits = two_rows.view(), .choices = choices.mut(), .weights = weights.mut()};
    a.choices.cols = a.choices.stride = a.weights.cols = a.weights.stride = 0;
  };
  EXPECT_THROW(call(none_of_six), Bug);
  const auto seven_of_six = [&](Args& a) {
    a = {.logits = two_rows.view(), .choices = many.mut(), .weights = many_weights.mut()};
  };
  EXPECT_THROW(call(seven_of_six), Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule.groups = 4; }), Bug) << "six experts in four groups";
  EXPECT_THROW(call([&](Args& a) { a.rule.groups = 0; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule.top_groups = 0; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule.top_groups = 4; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule = {.group_score = GroupScore::kMax, .groups = 6, .top_groups = 1}; }), Bug)
      << "two choices of one expert";
  EXPECT_THROW(call([&](Args& a) { a.rule = {.group_score = GroupScore::kTopTwo, .groups = 6, .top_groups = 3}; }),
               Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule.sum_floor = -1; }), Bug);
  EXPECT_THROW(call([&](Args& a) { a.rule.sum_eps = -1; }), Bug);
}

}  // namespace
}  // namespace ashlar::test
