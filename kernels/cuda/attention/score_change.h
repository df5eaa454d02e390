#pragma once

#include "kernels/cuda/attention/problem.h"
#include "kernels/cuda/dev/math.h"

/// What becomes of scores between scale * q.k and the mask: the soft cap, then ALiBi or T5's bias.
namespace ashlar::ASHLAR_DEV::attention {

/// Of one query head. Made of zeros it changes nothing. Without kBiases there are none: for kernels that would pay with
/// registers.
template <typename A, bool kBiases = true>
class ScoreChange {
 public:
  ScoreChange() = default;
  template <typename S>
  __device__ ScoreChange(const Problem& p, const HeadNumbers<S>& heads, int64_t h)
      : softcap_(static_cast<A>(p.softcap)),
        inverse_(p.softcap != 0 ? static_cast<A>(1 / p.softcap) : A{0}),
        slope_(heads.slopes != nullptr ? heads.slopes[h] : A{0}),
        biases_(heads.biases != nullptr ? heads.biases + h * heads.distances : nullptr),
        last_distance_(heads.distances - 1),
        diagonal_(p.diagonal) {}

  /// The score of query t and key j, and what a gradient of it is multiplied by to be one of scale * q.k.
  template <bool kFast>
  __device__ __forceinline__ A apply(A score, int t, int j, A& derivative) const {
    derivative = 1;
    if (softcap_ != 0) {
      const A x = hyperbolic_tangent<kFast>(score * inverse_);
      derivative = fused(-x, x, A{1});
      score = softcap_ * x;
    }
    if (kBiases && biases_ != nullptr)
      score += biases_[min(max(diagonal_ + t - j, 0), last_distance_)];  // before 0 is masked
    return fused(-slope_, static_cast<A>(diagonal_ + t - j), score);
  }
  template <bool kFast>
  __device__ __forceinline__ A apply(A score, int t, int j) const {
    A derivative;
    return apply<kFast>(score, t, j, derivative);
  }

 private:
  A softcap_ = 0, inverse_ = 0, slope_ = 0;
  const A* biases_ = nullptr;
  int last_distance_ = 0, diagonal_ = 0;
};

/// A sink joins a row: its lse, and what the row's probabilities are multiplied by. A row without keys has lse -inf.
template <typename A>
__device__ __forceinline__ A join_sink(A sink, A& lse) {
  const A top = max(sink, lse), keys = exponential(lse - top);
  lse = top + logarithm(keys + exponential(sink - top));
  return exponential(top - lse) * keys;
}

}  // namespace ashlar::ASHLAR_DEV::attention
