#pragma once

#include "core/backend/routing.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

/// The scores of a router (core/backend/routing.h) for one row. A warp processes a row: lane l has experts l, l + 32,
/// and so on. Logits are read again for each pass, from the L1 cache.
namespace ashlar::ASHLAR_DEV {

/// Most experts of a router: as many as fit into the shared memory of a block.
inline constexpr int64_t kMostExperts = 4096;

inline void check_experts(const char* where, int64_t experts) {
  if (experts > kMostExperts) {
    throw input_error(where, "expected at most ", kMostExperts, " experts, got ", experts, "; the GPU holds no more");
  }
}

/// The logistic function 1 / (1 + exp(-x)) and its complement, both without cancellation. Propagates NaN.
template <typename A>
struct Sigmoid {
  A score, rest;

  __device__ __forceinline__ explicit Sigmoid(A x) {
    const A e = exponential(-fabs(x)), larger = A{1} / (A{1} + e), smaller = e * larger;
    score = x < A{0} ? smaller : larger;
    rest = x < A{0} ? larger : smaller;
  }
  /// Returns log(score), without underflow.
  __device__ __forceinline__ static A logarithm_of(A x) {
    return (x < A{0} ? x : A{0}) - logarithm(A{1} + exponential(-fabs(x)));
  }
};

/// The softmax of the logits of a row. A NaN among them makes `sum` NaN.
template <typename A>
struct RowSoftmax {
  A max = 0, sum = 1, inverse = 1;

  RowSoftmax() = default;
  /// The whole warp must call it.
  __device__ __forceinline__ RowSoftmax(const A* row, int experts, int lane) {
    max = -infinity<A>();
    for (int e = lane; e < experts; e += 32) max = Max()(max, row[e]);
    max = warp_reduce(max, Max());
    sum = 0;
    for (int e = lane; e < experts; e += 32) sum += exponential(row[e] - max);
    sum = warp_reduce(sum, Add());
    inverse = A{1} / sum;
  }
  __device__ __forceinline__ A p(A logit) const { return exponential(logit - max) * inverse; }
  __device__ __forceinline__ A lse() const { return max + logarithm(sum); }
};

/// A sum of scores that all underflow counts as 1.
template <typename A>
__device__ __forceinline__ A divisor_of(A sum) {
  return sum == A{0} ? A{1} : sum;
}

/// Returns the sum of the sigmoids of a row, by which they are divided. The whole warp must call it.
template <typename A>
__device__ __forceinline__ A sum_sigmoids(const A* row, int experts, int lane) {
  A sum = 0;
  for (int e = lane; e < experts; e += 32) sum += Sigmoid<A>(row[e]).score;
  return divisor_of(warp_reduce(sum, Add()));
}

/// How chosen experts are weighted: the part of RouterRule that choices do not depend on.
template <typename A>
struct WeightRule {
  bool sigmoid, renormalize;
  bool alone;  ///< a softmax over the chosen logits alone
  A floor, eps, scale;

  static WeightRule of(const RouterRule& rule) {
    const bool sigmoid = rule.score == RouterScore::kSigmoid;
    return {.sigmoid = sigmoid,
            .renormalize = rule.renormalize,
            .alone = !sigmoid && rule.renormalize && rule.sum_floor == 0 && rule.sum_eps == 0,
            .floor = static_cast<A>(rule.sum_floor),
            .eps = static_cast<A>(rule.sum_eps),
            .scale = static_cast<A>(rule.scale)};
  }
};

/// The shares of the chosen experts: s, or with renormalize s / (max(sum of s, floor) + eps). A weight is scale * share
/// * expert_scale.
template <typename A>
struct ChosenShares {
  bool sigmoid;
  RowSoftmax<A> softmax;  ///< of all experts, or of the chosen ones without the division by the sum
  A divisor = 1;
  bool sum_in_divisor = false;  ///< the divisor depends on s

  /// `chosen` has the k experts. `all` is the softmax of the row, which a sigmoid and rule.alone do not need. The whole
  /// warp must call it.
  __device__ __forceinline__ ChosenShares(const WeightRule<A>& rule, const A* row, const int32_t* chosen, int k,
                                          const RowSoftmax<A>& all, int lane)
      : sigmoid(rule.sigmoid), softmax(all) {
    if (rule.alone) {
      A max = -infinity<A>();
      for (int j = lane; j < k; j += 32) max = Max()(max, row[chosen[j]]);
      softmax.max = warp_reduce(max, Max());
      softmax.inverse = 1;
    }
    if (!rule.renormalize) return;
    A sum = 0;
    for (int j = lane; j < k; j += 32) sum += score(row[chosen[j]]);
    sum = warp_reduce(sum, Add());
    sum_in_divisor = !(sum < rule.floor);
    divisor = divisor_of((sum_in_divisor ? sum : rule.floor) + rule.eps);
  }

  __device__ __forceinline__ A score(A logit) const { return sigmoid ? Sigmoid<A>(logit).score : softmax.p(logit); }
  __device__ __forceinline__ A operator()(A logit) const { return score(logit) / divisor; }
};

/// expert_scale of the contracts; null if absent.
template <typename A>
struct ExpertScales {
  const void* data;
  bool bf16;

  static ExpertScales of(const ConstView& v) { return {v.data, v.dtype == DType::kBFloat16}; }
  __device__ __forceinline__ A operator[](int e) const {
    if (data == nullptr) return 1;
    return bf16 ? static_cast<A>(widen(static_cast<const BF16*>(data)[e])) : static_cast<const A*>(data)[e];
  }
};

}  // namespace ashlar::ASHLAR_DEV
