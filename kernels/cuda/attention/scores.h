#pragma once

#include "core/backend/attention.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/vector.h"

/// Changes of scores between scale * q.k and the mask (ScoreChange of core/backend/attention.h): the soft cap, then
/// ALiBi or the bias of T5; and the sinks.
namespace ashlar::ASHLAR_DEV::attention {

/// ScoreChange as plain numbers and device addresses, S the storage type; absent parts are null.
template <typename S>
struct Scores {
  using A = AccumulateOf<S>;

  double scale = 1, softcap = 0;
  const A* slopes = nullptr;            ///< [H] of ALiBi
  const S* sinks = nullptr;             ///< [H]
  const S* t5_bias = nullptr;           ///< [num_buckets, H], rows t5_row apart
  const int32_t* t5_buckets = nullptr;  ///< [distances]
  int64_t t5_row = 0;
  int num_buckets = 0, distances = 0;
  int zero = 0;               ///< the entry of distance 0
  const A* biases = nullptr;  ///< [H, distances], T5's by distance: kernels.h, gather_biases

  static Scores of(const AttentionShape& s) {
    const ScoreChange& c = s.scores;
    const auto distances = static_cast<int>(c.t5_buckets.size());
    return {.scale = c.scale,
            .softcap = c.softcap,
            .slopes = static_cast<const A*>(c.alibi_slopes.data),
            .sinks = static_cast<const S*>(c.sinks.data),
            .t5_bias = static_cast<const S*>(c.t5_bias.data),
            .t5_buckets = static_cast<const int32_t*>(c.t5_buckets.data),
            .t5_row = c.t5_bias.stride,
            .num_buckets = static_cast<int>(c.t5_bias.rows),
            .distances = distances,
            .zero = s.mask.causal ? 0 : distances / 2};
  }
  /// True if scores are more than scale * q.k.
  bool change() const { return slopes != nullptr || t5_bias != nullptr || softcap != 0; }
  /// Returns the entry of a distance i - j. In causal attention a negative distance has the entry of 0, and is masked.
  __device__ int entry(int distance) const { return min(max(zero + distance, 0), distances - 1); }
};

/// Score changes of one query head. All zeros: no change. Without kBiases T5's biases are not supported, which saves
/// registers.
template <typename A, bool kBiases = true>
class HeadScores {
 public:
  HeadScores() = default;
  template <typename S>
  __device__ HeadScores(const Scores<S>& scores, int64_t h, int diagonal)
      : softcap_(static_cast<A>(scores.softcap)),
        inverse_(scores.softcap != 0 ? static_cast<A>(1 / scores.softcap) : A{0}),
        slope_(scores.slopes != nullptr ? scores.slopes[h] : A{0}),
        biases_(scores.biases != nullptr ? scores.biases + h * scores.distances + scores.zero : nullptr),
        first_distance_(-scores.zero),
        last_distance_(scores.distances - 1 - scores.zero),
        diagonal_(diagonal) {}

  /// The score of query t and key j, and the factor that converts its gradient to a gradient of scale * q.k.
  template <bool kFast>
  __device__ __forceinline__ A apply(A score, int t, int j, A& derivative) const {
    derivative = 1;
    if (softcap_ != 0) {
      const A x = hyperbolic_tangent<kFast>(score * inverse_);
      derivative = fused(-x, x, A{1});
      score = softcap_ * x;
    }
    const int distance = diagonal_ + t - j;
    if (kBiases && biases_ != nullptr) score += biases_[min(max(distance, first_distance_), last_distance_)];
    return fused(-slope_, static_cast<A>(abs(distance)), score);
  }
  template <bool kFast>
  __device__ __forceinline__ A apply(A score, int t, int j) const {
    A derivative;
    return apply<kFast>(score, t, j, derivative);
  }

 private:
  A softcap_ = 0, inverse_ = 0, slope_ = 0;
  const A* biases_ = nullptr;
  int first_distance_ = 0, last_distance_ = 0, diagonal_ = 0;
};

/// Adds a sink to a row: updates its lse, and returns the factor for the row's probabilities. A row without keys has
/// lse -inf.
template <typename A>
__device__ __forceinline__ A join_sink(A sink, A& lse) {
  const A top = max(sink, lse), keys = exponential(lse - top);
  lse = top + logarithm(keys + exponential(sink - top));
  return exponential(top - lse) * keys;
}

}  // namespace ashlar::ASHLAR_DEV::attention
