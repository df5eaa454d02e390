#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "core/backend/routing.h"
#include "tests/support/kernel_grid.h"

namespace ashlar::test {

/// The arithmetic of the references of routing. It is wider than fp64, so that finite differences are sharp and chosen
/// scores of exp(-800) do not underflow.
using RouterReal = long double;
using RouterRow = std::vector<RouterReal>;
using RouterChoices = std::vector<int32_t>;

/// Row n of a matrix; nothing of an absent matrix.
inline RouterRow router_row(const HostMatrix& m, int64_t n) {
  RouterRow row;
  for (int64_t c = 0; c < m.cols() && m.present(); ++c) row.push_back(m.at(n, c));
  return row;
}
inline RouterChoices router_choices(const HostMatrix& m, int64_t n) {
  RouterChoices row;
  for (int64_t c = 0; c < m.cols(); ++c) row.push_back(static_cast<int32_t>(m.at(n, c)));
  return row;
}

/// A matrix of one row.
inline HostMatrix router_vector(DType dtype, const std::vector<double>& values) {
  HostMatrix m(dtype, values.empty() ? 0 : 1, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) m.set(static_cast<int64_t>(i), values[i]);
  return m;
}

inline RouterReal router_sum(const RouterRow& row) { return std::accumulate(row.begin(), row.end(), RouterReal{0}); }

inline RouterReal log_sum_exp(const RouterRow& logits) {
  const RouterReal max = *std::max_element(logits.begin(), logits.end());
  RouterReal sum = 0;
  for (const RouterReal l : logits) sum += std::exp(l - max);
  return max + std::log(sum);
}

inline RouterRow router_scores(const RouterRow& logits, RouterScore score) {
  const RouterReal lse = log_sum_exp(logits);
  RouterRow s;
  for (const RouterReal l : logits)
    s.push_back(score == RouterScore::kSoftmax ? std::exp(l - lse) : 1 / (1 + std::exp(-l)));
  return s;
}

/// p: the scores divided by their sum.
inline RouterRow router_shares(const RouterRow& logits, RouterScore score) {
  RouterRow p = router_scores(logits, score);
  const RouterReal sum = router_sum(p);
  for (RouterReal& share : p) share /= sum;
  return p;
}

/// What the scores of the chosen experts are divided by.
inline RouterReal router_divisor(const RouterRow& scores, const RouterChoices& choices, const RouterRule& rule) {
  if (!rule.renormalize) return 1;
  RouterReal sum = 0;
  for (const int32_t e : choices) sum += scores[static_cast<size_t>(e)];
  return std::max(sum, RouterReal{rule.sum_floor}) + rule.sum_eps;
}

/// The weights of the chosen experts; `expert_scale` may be empty.
inline RouterRow router_weights(const RouterRow& logits, const RouterRow& expert_scale, const RouterChoices& choices,
                                const RouterRule& rule) {
  const RouterRow s = router_scores(logits, rule.score);
  const RouterReal divisor = router_divisor(s, choices, rule);
  RouterRow w;
  for (const int32_t e : choices) {
    const auto i = static_cast<size_t>(e);
    w.push_back(rule.scale * s[i] / divisor * (expert_scale.empty() ? 1 : expert_scale[i]));
  }
  return w;
}

/// The relative error of scores, and of what is made of them, in the accumulate type: exp has that of its argument,
/// which is a difference of two logits, and sums run over all experts.
inline double router_error(DType acc, const RouterRow& logits) {
  double largest = 0;
  for (const RouterReal l : logits)
    if (std::isfinite(l)) largest = std::max(largest, static_cast<double>(std::abs(l)));
  return unit_roundoff(acc) * (16 + 8 * largest + 2 * std::sqrt(static_cast<double>(logits.size())));
}
/// Added to bounds: what the accumulate type rounds to zero.
constexpr double kRouterUnderflow = 1e-36;

/// k different experts of E, in any order.
inline RouterChoices random_choices(int64_t E, int64_t k, std::mt19937_64& generator) {
  RouterChoices all(static_cast<size_t>(E));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), generator);
  all.resize(static_cast<size_t>(k));
  return all;
}
inline HostMatrix random_choices(int64_t N, int64_t E, int64_t k, uint64_t seed) {
  std::mt19937_64 generator(seed);
  HostMatrix m(DType::kInt32, N, k);
  for (int64_t n = 0; n < N; ++n) {
    const RouterChoices row = random_choices(E, k, generator);
    for (int64_t j = 0; j < k; ++j) m.set(n, j, row[static_cast<size_t>(j)]);
  }
  return m;
}

/// Weights are the scores; a group counts by its best expert.
inline constexpr RouterRule kUnscaled{.renormalize = false, .group_score = GroupScore::kMax};

/// The ways to make weights of scores. Each floor lies among the sums that occur.
inline constexpr std::array<RouterRule, 9> kRouterRules = {
    kUnscaled,
    RouterRule{.renormalize = false, .scale = 2.5},
    RouterRule{.renormalize = true},
    RouterRule{.renormalize = true, .sum_floor = 0.3, .scale = 0.5},
    RouterRule{.renormalize = true, .sum_eps = 0.05},
    RouterRule{.score = RouterScore::kSigmoid, .renormalize = false, .scale = 1.5},
    RouterRule{.score = RouterScore::kSigmoid, .renormalize = true},
    RouterRule{.score = RouterScore::kSigmoid, .renormalize = true, .sum_floor = 2},
    RouterRule{.score = RouterScore::kSigmoid, .renormalize = true, .sum_floor = 1, .sum_eps = 0.1, .scale = 2.5}};

}  // namespace ashlar::test
