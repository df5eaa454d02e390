#pragma once

#include "core/backend/cross_entropy.h"
#include "kernels/cuda/dev/math.h"
#include "kernels/cuda/dev/reduce.h"
#include "kernels/cuda/dispatch.h"

/// One row of logits in the cross-entropy: its statistics and its gradient.
namespace ashlar::ASHLAR_DEV {

inline constexpr int kMaxLossThreads = 512;
inline constexpr int kLossAhead = 4;  ///< number of vectors of a row that a thread processes together

/// LossShape in the form of a kernel argument.
struct LossSlice {
  const int32_t* targets;
  int64_t vocab_begin;
  int valid_cols, cols;
  double logit_scale;

  /// Returns the column of row n's target, or -1 if the target is not in this slice of the vocabulary.
  __device__ __forceinline__ int target_column(int64_t n) const {
    const int64_t target = targets[n], column = target - vocab_begin;
    return target >= 0 && column >= 0 && column < valid_cols ? static_cast<int>(column) : -1;
  }
};

/// Computes z, the scaled logit.
template <typename A>
struct Scaled {
  explicit Scaled(const LossShape& shape) : scale(static_cast<A>(shape.logit_scale)) {}
  __device__ __forceinline__ A z(A logit) const { return logit * scale; }
  /// Returns z - shift, rounded once.
  __device__ __forceinline__ A below(A logit, A shift) const { return fused(logit, scale, -shift); }

  A scale;
};

/// Computes z, the scaled logit after the soft cap. z of -inf is -inf.
template <typename A>
struct Capped {
  explicit Capped(const LossShape& shape)
      : cap(static_cast<A>(shape.softcap)), inverse(static_cast<A>(shape.logit_scale / shape.softcap)) {}
  __device__ __forceinline__ A z(A logit) const {
    return logit == -infinity<A>() ? logit : cap * hyperbolic_tangent<false>(logit * inverse);
  }
  __device__ __forceinline__ A below(A logit, A shift) const { return z(logit) - shift; }

  A cap, inverse;
};

/// Calls f with a Scaled if the shape has no soft cap, otherwise with a Capped.
template <typename A, typename F>
void with_z(const LossShape& shape, const F& f) {
  return shape.softcap == 0 ? f(Scaled<A>(shape)) : f(Capped<A>(shape));
}

/// Returns exp(x) for x <= 0. The result is approximate if the type T of the logits is bf16.
template <typename T, typename A>
__device__ __forceinline__ A exp_of(A x) {
  return exponential<sizeof(T) == 2>(x);
}

/// Running statistics of some columns: the maximum of z and the sum of exp(z - max). max may be -inf.
template <typename T>
struct RunningSum {
  using A = AccumulateOf<T>;
  A max = -infinity<A>(), sum = 0;

  /// Returns the number to subtract from z before exp: the maximum, or 0 if it is -inf, since -inf - -inf would be NaN.
  __device__ __forceinline__ static A shift_of(A max) { return max == -infinity<A>() ? A{0} : max; }
  __device__ __forceinline__ void rescale(A new_max) {
    sum *= exp_of<T>(max - shift_of(new_max));
    max = new_max;
  }
};

/// Adds kLossAhead vectors, which are `step` columns apart, to a thread's statistics. `left` is the number of valid
/// columns from the first vector on.
/// 1. updates the maximum and rescales the sum to the new maximum  2. adds the exponentials to the sum.
template <typename T, class Z>
__device__ __forceinline__ void add_vectors(RunningSum<T>& mine, const Z& z, const Vec<T, kWidth<T>> (&vec)[kLossAhead],
                                            int left, int step) {
  using A = AccumulateOf<T>;
  constexpr int W = kWidth<T>;
  // 1. maximum. max(z, max) drops NaN, but the sum keeps it.
  A max = mine.max;
  ASHLAR_UNROLL
  for (int k = 0; k < kLossAhead; ++k) {
    const int count = left - k * step;
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      if (i < count) max = Max()(max, z.z(static_cast<A>(vec[k].wide(i))));
    }
  }
  mine.rescale(max);
  // 2. add the exponentials
  const A shift = mine.shift_of(max);
  ASHLAR_UNROLL
  for (int k = 0; k < kLossAhead; ++k) {
    const int count = left - k * step;
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) {
      const A e = exp_of<T>(z.below(static_cast<A>(vec[k].wide(i)), shift));
      if (i < count) mine.sum += e;
    }
  }
}

/// The statistics of a row from those of its threads: finds the row's maximum, to which each thread rescales its sum,
/// and adds the sums.
template <typename T>
__device__ __forceinline__ RunningSum<T> row_total(RunningSum<T> mine, RowGroup<AccumulateOf<T>>& group) {
  mine.rescale(group.reduce(mine.max, Max()));
  mine.sum = group.reduce(mine.sum, Add());
  return mine;
}

/// Values for the gradient of one row. One thread computes them for its block.
template <typename A>
struct RowFactors {
  A max, weight, at_target;
};

/// Gradient of logits without a soft cap. The z-loss, if any, is computed from log Z (ZKind::kLse).
template <typename A>
struct PlainGrad {
  explicit PlainGrad(const LossBackward& args) : scale(static_cast<A>(args.shape.logit_scale)) {}

  __device__ __forceinline__ double lse_slope(double z_coef, double lse) const { return 2 * z_coef * lse; }
  /// Returns the gradient of the target's logit, in double.
  template <typename F>
  __device__ __forceinline__ double at_target(int64_t, const LossSlice& slice, double logit, const F& f) const {
    return f.weight * exponential(logit * slice.logit_scale - f.max) - f.unit;
  }
  template <typename T>
  __device__ __forceinline__ A of(A logit, const RowFactors<A>& f, A) const {
    return exp_of<T>(fused(logit, scale, -f.max)) * f.weight;
  }
  /// Returns what the z-loss adds to the gradient of the row's largest logits: nothing, since it depends on log Z only.
  __device__ __forceinline__ A share(int64_t, double, double) const { return 0; }

  A scale;
};

/// Gradient of logits with an optional soft cap (0 = none). If max_count is set, the z-loss is computed from the
/// largest logit, otherwise from log Z (ZKind::kLse).
template <typename A>
struct CappedGrad {
  explicit CappedGrad(const LossBackward& args)
      : scaled(args.shape),
        capped(args.shape),
        cap(args.shape.softcap),
        max_count(static_cast<const A*>(args.max_count.data)) {}

  __device__ __forceinline__ double lse_slope(double z_coef, double lse) const {
    return max_count == nullptr ? 2 * z_coef * lse : 0;
  }
  __device__ __forceinline__ A share(int64_t n, double unit_z_coef, double max) const {
    return max_count == nullptr ? A{0} : static_cast<A>(2 * unit_z_coef * max / max_count[n]);
  }
  __device__ __forceinline__ A z(A logit) const { return cap == 0 ? scaled.z(logit) : capped.z(logit); }
  template <typename F>
  __device__ __forceinline__ double at_target(int64_t n, const LossSlice& slice, double logit, const F& f) const {
    const double x = logit * slice.logit_scale;
    const double t = cap == 0 ? 0 : hyperbolic_tangent<false>(x / cap);
    const double z_t = cap == 0 ? x : cap * t;
    const bool largest = z(static_cast<A>(logit)) >= static_cast<A>(f.max);
    const double more = largest ? static_cast<double>(share(n, f.unit * f.z_coef, f.max)) : 0;
    return (f.weight * exponential(z_t - f.max) + more - f.unit) * (1 - t * t);
  }
  template <typename T>
  __device__ __forceinline__ A of(A logit, const RowFactors<A>& f, A share) const {
    const A value = z(logit), e = exp_of<T>(value - f.max);
    const A grad = e * f.weight + (value >= f.max ? share : A{0});
    if (cap == 0) return grad;
    const A t = value / static_cast<A>(cap);  // not finite if value is -inf; e and the gradient are then 0
    return e == A{0} ? A{0} : grad * fused(-t, t, A{1});
  }

  Scaled<A> scaled;
  Capped<A> capped;
  double cap;
  const A* max_count;
};

/// Arguments for the gradient of a row's target logit, in double.
struct TargetFactors {
  double max, weight, unit, z_coef;
};

/// Computes the factors of row n, for one thread, in double: the factor of all exponentials, weight = unit * (1 + s) /
/// row_sum, where unit = logit_scale / number of valid tokens, and s is the derivative of the z-loss by log Z;
/// and the gradient of the target from its logit, before dlogits may overwrite the logit.
template <typename T, class Grad>
__device__ __forceinline__ RowFactors<AccumulateOf<T>> row_factors(const Grad& grad, const LossSlice& slice, int64_t n,
                                                                   const T* row, double max, double sum, double unit,
                                                                   double z_coef) {
  using A = AccumulateOf<T>;
  const int target = slice.target_column(n);
  const double weight = unit * (1 + grad.lse_slope(z_coef, max + logarithm(sum))) / sum;
  double at_target = 0;
  if (target >= 0) at_target = grad.at_target(n, slice, widen(row[target]), TargetFactors{max, weight, unit, z_coef});
  return {static_cast<A>(max), static_cast<A>(weight), static_cast<A>(at_target)};
}

/// The gradients of the logits z of a row, from column c on.
template <typename U, typename T, int W, class Grad>
__device__ __forceinline__ Vec<U, W> gradients(const Grad& grad, const Vec<T, W>& z, int c, int valid_cols, int target,
                                               const RowFactors<AccumulateOf<T>>& f, AccumulateOf<T> share) {
  using A = AccumulateOf<T>;
  A values[W];
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) {
    const A value = grad.template of<T>(static_cast<A>(z.wide(i)), f, share);
    values[i] = c + i == target ? f.at_target : c + i < valid_cols ? value : A{0};
  }
  return narrow<U>(values);
}

inline LossSlice slice_of(const LossShape& shape, const ConstView& logits) {
  return {.targets = static_cast<const int32_t*>(shape.targets.data),
          .vocab_begin = shape.vocab_begin,
          .valid_cols = static_cast<int>(shape.valid_cols),
          .cols = static_cast<int>(logits.cols),
          .logit_scale = shape.logit_scale};
}

/// Returns the number of threads of a block: one for each vector of a row, in whole warps, at most kMaxLossThreads.
inline unsigned loss_threads(int64_t cols, int64_t width) {
  return static_cast<unsigned>(std::min<int64_t>(kMaxLossThreads, div_up(std::max<int64_t>(cols, 1), width * 32) * 32));
}

}  // namespace ashlar::ASHLAR_DEV
