#pragma once

#include "core/backend/attention.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/vector.h"

/// Changes of scores (ScoreChange of core/backend/attention.h): after scale * q.k and before the mask, the soft cap and
/// then ALiBi or the bias of T5 are applied. Attention sinks take part in the softmax.
namespace ashlar::ASHLAR_DEV::attention {

inline constexpr float kLog2E = 1.44269504F;

/// ScoreChange as plain numbers and device addresses. S is the storage type. Absent parts are null.
template <typename S>
struct Scores {
  using A = AccumulateOf<S>;

  double scale = 1, softcap = 0;
  const A* slopes = nullptr;            ///< [H], the slopes of ALiBi
  const S* sinks = nullptr;             ///< [H]
  const S* t5_bias = nullptr;           ///< [num_buckets, H]; rows are t5_row elements apart
  const int32_t* t5_buckets = nullptr;  ///< [distances], the bucket of each distance
  int64_t t5_row = 0;
  int num_buckets = 0, distances = 0;
  int zero = 0;               ///< index of distance 0 in t5_buckets and biases
  const A* biases = nullptr;  ///< [H, distances], the T5 bias of each distance, from gather_biases (kernels.h)

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
  /// True if there is a soft cap, ALiBi or T5's bias.
  bool change() const { return slopes != nullptr || t5_bias != nullptr || softcap != 0; }
  /// Returns the index of a distance i - j in t5_buckets and biases. In causal attention negative distances are masked,
  /// and get the index of distance 0.
  __device__ int entry(int distance) const { return min(max(zero + distance, 0), distances - 1); }
};

/// Score changes of one query head. A default-constructed object changes nothing. With kBiases = false, which saves
/// registers, T5's biases are not supported.
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

  /// Returns the changed score of query t and key j. Sets `derivative` to the factor that converts the gradient of the
  /// changed score to the gradient of scale * q.k.
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

/// Adds a sink to a row: updates its lse, and returns the factor for the row's probabilities. `lse` is -inf before the
/// call if the row has no keys.
template <typename A>
__device__ __forceinline__ A join_sink(A sink, A& lse) {
  const A top = max(sink, lse), keys = exponential(lse - top);
  lse = top + logarithm(keys + exponential(sink - top));
  return exponential(top - lse) * keys;
}

}  // namespace ashlar::ASHLAR_DEV::attention
