// Cross-entropy over the vocabulary or a slice of it: statistics of rows, the loss, the gradient of logits. Statistics
// read a row for its maximum and then, mostly from cache, for its sum of exponentials. The gradient is one more pass,
// which also writes 2 or 4 B per element; where both are wanted, a row's gradient follows its statistics, mostly from
// cache. Each pass reads 4 B (fp32) and computes one exponential (about 20 flops) per element. Memory-bound with
// AVX-512, nearly so with AVX2. Threads process whole rows.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_LOSS_ONCE
#define ASHLAR_KERNELS_CPU_LOSS_ONCE
namespace ashlar::cpu {

/// Returns row n's target; negative if the row is skipped.
inline int32_t target_of(const LossShape& shape, int64_t n) { return row_of<int32_t>(shape.targets, 0)[n]; }

/// Returns the column of row n's target, or -1 if the target is not in this slice of the vocabulary.
inline int64_t target_column(const LossShape& shape, int64_t n) {
  const int64_t target = target_of(shape, n), column = target - shape.vocab_begin;
  return target >= 0 && column >= 0 && column < shape.valid_cols ? column : -1;
}

/// Computes z (the logit after scale and soft cap) in double, and slope = dz / d(logit * scale).
struct ZAndSlope {
  ZAndSlope(const LossShape& shape, double logit) : z(logit * shape.logit_scale) {
    if (shape.softcap == 0) return;
    const double t = std::tanh(z / shape.softcap);
    z = shape.softcap * t;
    slope = 1 - t * t;
  }
  double z, slope = 1;
};

}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Calls f(A()), where A is the type of the logits, fp32 or fp64.
template <typename F>
void with_logits(std::string_view where, const ConstView& logits, const F& f) {
  if (logits.dtype == DType::kFloat64) return f(double());
  if (logits.dtype == DType::kFloat32) return f(float());
  throw input_error(where, "logits of ", name_of(logits.dtype), " are not supported by the cpu backend; use ",
                    name_of(accumulate_dtype(logits.dtype)));
}

/// Computes z, the scaled logit.
template <typename A>
struct Scaled {
  using D = TagOf<A>;
  explicit Scaled(const LossShape& shape) : scale(static_cast<A>(shape.logit_scale)) {}
  HWY_INLINE VecOf<D> z(VecOf<D> logit) const { return hn::Mul(logit, hn::Set(D(), scale)); }
  /// Returns z - shift, rounded once.
  HWY_INLINE VecOf<D> below(VecOf<D> logit, VecOf<D> shift) const {
    return hn::MulSub(logit, hn::Set(D(), scale), shift);
  }
  /// Returns `grad` times dz / d(logit * scale).
  HWY_INLINE VecOf<D> chain(VecOf<D>, VecOf<D> grad) const { return grad; }

  A scale;
};

/// Computes z, the scaled logit after the soft cap. z of -inf is -inf.
template <typename A>
struct Capped {
  using D = TagOf<A>;
  explicit Capped(const LossShape& shape)
      : cap(static_cast<A>(shape.softcap)), inverse(static_cast<A>(shape.logit_scale / shape.softcap)) {}
  HWY_INLINE VecOf<D> tangent(VecOf<D> logit) const {
    const auto x = hn::Mul(logit, hn::Set(D(), inverse));
    return hn::IfThenElse(hn::Eq(x, x), hn::Tanh(D(), x), x);
  }
  HWY_INLINE VecOf<D> z(VecOf<D> logit) const {
    const auto lowest = hn::Set(D(), -std::numeric_limits<A>::infinity());
    return hn::IfThenElse(hn::Eq(logit, lowest), lowest, hn::Mul(hn::Set(D(), cap), tangent(logit)));
  }
  HWY_INLINE VecOf<D> below(VecOf<D> logit, VecOf<D> shift) const { return hn::Sub(z(logit), shift); }
  HWY_INLINE VecOf<D> chain(VecOf<D> logit, VecOf<D> grad) const {
    const auto t = tangent(logit);
    return hn::Mul(grad, hn::NegMulAdd(t, t, hn::Set(D(), A{1})));
  }

  A cap, inverse;
};

/// Calls f with a Scaled if the shape has no soft cap, otherwise with a Capped.
template <typename A, typename F>
void with_z(const LossShape& shape, const F& f) {
  return shape.softcap == 0 ? f(Scaled<A>(shape)) : f(Capped<A>(shape));
}

/// Returns z of one logit.
template <class Z, typename A>
A z_of(const Z& z, A logit) {
  const TagOf<A> d;
  return hn::GetLane(z.z(hn::Set(d, logit)));
}

template <typename A, class Z>
void row_stats(const Z& z_of_row, const LossRowStats& a, int64_t n) {
  constexpr int64_t kBlock = 4096;  // number of columns of an fp32 sum; these sums are added in double
  const TagOf<A> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
  const A* z = row_of<A>(a.logits, n);
  // 1. max(z, acc) drops NaN, but the sum of the row keeps it.
  const A row_max = reduce_lanes(d, a.shape.valid_cols, lowest, MaxOp(),
                                 [&](auto acc, int64_t c, auto part)
                                     ASHLAR_SIMD { return hn::Max(z_of_row.z(load(d, z + c, part)), acc); });
  // 2. a row without a finite logit sums to 0 and not to exp(-inf + inf); NaN is kept
  const auto shift = hn::Set(d, row_max == -std::numeric_limits<A>::infinity() ? A{0} : row_max);
  double sum = 0;
  for (int64_t first = 0; first < a.shape.valid_cols; first += kBlock) {
    sum += sum_lanes(d, std::min(kBlock, a.shape.valid_cols - first), [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
      return hn::Add(acc, exp_below_88(d, z_of_row.below(load(d, z + first + c, part), shift)));
    });
  }
  const int64_t target = target_column(a.shape, n);
  static_cast<A*>(a.row_max.data)[n] = row_max;
  static_cast<A*>(a.row_sum.data)[n] = static_cast<A>(sum);
  static_cast<A*>(a.target_logit.data)[n] = target < 0 ? A{0} : z_of(z_of_row, z[target]);
}

void loss_row_stats_impl(const LossRowStats& a, Threads& threads) {
  with_logits("loss_row_stats", a.logits, [&](auto t) {
    using A = decltype(t);
    with_z<A>(a.shape, [&](const auto& z) {
      for_rows(threads, a.logits, kExpensiveGrain, [&](int64_t n) ASHLAR_SIMD { row_stats<A>(z, a, n); });
    });
  });
}

void loss_max_count_impl(const LossMaxCount& a, Threads& threads) {
  with_logits("loss_max_count", a.logits, [&](auto t) {
    using A = decltype(t);
    with_z<A>(a.shape, [&](const auto& z) {
      for_rows(threads, a.logits, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
        const TagOf<A> d;
        const A* row = row_of<A>(a.logits, n);
        const auto highest = hn::Set(d, static_cast<const A*>(a.row_max.data)[n]);
        static_cast<A*>(a.max_count.data)[n] =
            sum_lanes(d, a.shape.valid_cols, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
              const auto value = z.z(load(d, row + c, part));
              return hn::Add(acc, hn::IfThenElseZero(hn::Ge(value, highest), hn::Set(d, A{1})));
            });
      });
    });
  });
}

/// Adds the gradient of a z-loss of the row's largest logit to the columns that have the maximum. With kWanted = false
/// there is no such z-loss, and nothing is added.
template <bool kWanted>
struct LargestGrad {
  template <class D>
  HWY_INLINE VecOf<D> add(D d, VecOf<D> grad, VecOf<D> z, hn::TFromD<D> row_max, hn::TFromD<D> share) const {
    if constexpr (!kWanted) return grad;
    return hn::Add(grad, hn::IfThenElseZero(hn::Ge(z, hn::Set(d, row_max)), hn::Set(d, share)));
  }
};

/// Writes rows [begin, end) of dlogits = unit * (softmax - onehot(target)), with the z-loss and times the slope of the
/// soft cap. `unit` is logit_scale * inv_valid_tokens.
template <typename A, typename T, class Z, class Largest>
void loss_backward_rows(const Z& z_of_row, const Largest& largest, const LossBackward& a, double unit, int64_t begin,
                        int64_t end) {
  const TagOf<A> d;
  const int64_t valid_cols = a.shape.valid_cols;
  for (int64_t n = begin; n < end; ++n) {
    const A* z = row_of<A>(a.logits, n);
    T* out = row_of<T>(a.dlogits, n);
    if (target_of(a.shape, n) < 0) {
      std::fill_n(out, a.dlogits.cols, T());
      continue;
    }
    // 1. the factor of all exponentials, weight = unit * (1 + 2 z_coef lse) / row_sum
    const double row_max = static_cast<const A*>(a.row_max.data)[n];
    const double row_sum = static_cast<const A*>(a.row_sum.data)[n];
    const double lse_slope = a.max_count ? 0 : 2 * a.z_coef * (row_max + std::log(row_sum));
    const double weight = unit * (1 + lse_slope) / row_sum;
    const double share = a.max_count ? unit * 2 * a.z_coef * row_max / static_cast<const A*>(a.max_count.data)[n] : 0;
    // 2. the gradient of the target from its logit, before dlogits may overwrite the logit
    const int64_t target = target_column(a.shape, n);
    double at_target = 0;
    if (target >= 0) {
      const ZAndSlope at(a.shape, z[target]);
      const bool is_largest = a.max_count && z_of(z_of_row, z[target]) >= static_cast<A>(row_max);
      at_target = (weight * std::exp(at.z - row_max) + (is_largest ? share : 0) - unit) * at.slope;
    }
    // 3. the gradients of the row
    const auto row_max_v = hn::Set(d, static_cast<A>(row_max));
    const auto weight_v = hn::Set(d, static_cast<A>(weight));
    for_lanes(d, valid_cols, [&](int64_t c, auto part) ASHLAR_SIMD {
      const auto logit = load(d, z + c, part);
      const auto e = exp_below_88(d, z_of_row.below(logit, row_max_v));
      const auto grad =
          largest.add(d, hn::Mul(e, weight_v), z_of_row.z(logit), static_cast<A>(row_max), static_cast<A>(share));
      store(d, z_of_row.chain(logit, grad), out + c, part);
    });
    std::fill(out + valid_cols, out + a.dlogits.cols, T());
    if (target >= 0) store_rounded(at_target, out + target);
  }
}

/// Writes rows [begin, end) of dlogits in their dtype.
template <typename A, class Z, class Largest>
void loss_backward_rows_of(const Z& z, const Largest& largest, const LossBackward& a, int64_t begin, int64_t end) {
  const double unit = a.shape.logit_scale * struct_of<StepScalars>(a.scalars).inv_valid_tokens;
  if (a.dlogits.dtype == DType::kBFloat16) {
    if constexpr (std::is_same_v<A, float>) loss_backward_rows<A, BF16>(z, largest, a, unit, begin, end);
  } else {
    loss_backward_rows<A, A>(z, largest, a, unit, begin, end);
  }
}

void loss_backward_impl(const LossBackward& a, Threads& threads) {
  with_logits("loss_backward", a.logits, [&](auto t) {
    using A = decltype(t);
    parallel_for(threads, a.logits.rows, rows_grain(a.logits.cols, kExpensiveGrain), [&](int64_t begin, int64_t end) {
      with_z<A>(a.shape, [&](const auto& z) {
        return a.max_count ? loss_backward_rows_of<A>(z, LargestGrad<true>(), a, begin, end)
                           : loss_backward_rows_of<A>(z, LargestGrad<false>(), a, begin, end);
      });
    });
  });
}

void loss_stats_and_grad_impl(const LossStatsAndGrad& a, Threads& threads) {
  const LossRowStats stats = a.stats();
  const LossBackward grad = a.grad();
  with_logits("loss_stats_and_grad", a.logits, [&](auto t) {
    using A = decltype(t);
    with_z<A>(a.shape, [&](const auto& z) {
      for_rows(threads, a.logits, kExpensiveGrain, [&](int64_t n) ASHLAR_SIMD {
        row_stats<A>(z, stats, n);
        loss_backward_rows_of<A>(z, LargestGrad<false>(), grad, n, n + 1);
      });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
namespace {

template <typename A>
void rescale_rows(const LossRescale& a) {
  const A* local = static_cast<const A*>(a.local_max.data);
  const A* global = static_cast<const A*>(a.global_max.data);
  A* sum = static_cast<A*>(a.row_sum.data);
  for (int64_t n = 0; n < a.row_sum.size(); ++n) {
    // Without a finite logit in this slice the sum is 0 or NaN, and stays as it is.
    if (local[n] == -std::numeric_limits<A>::infinity()) continue;
    sum[n] = static_cast<A>(sum[n] * std::exp(static_cast<double>(local[n]) - static_cast<double>(global[n])));
  }
}

template <typename A>
void reduce_rows(const LossReduce& a) {
  const A* row_max = static_cast<const A*>(a.row_max.data);
  const A* row_sum = static_cast<const A*>(a.row_sum.data);
  const A* target_logit = static_cast<const A*>(a.target_logit.data);
  LossStats& stats = struct_of<LossStats>(a.stats);
  for (int64_t n = 0; n < a.row_max.size(); ++n) {
    if (target_of(a.shape, n) < 0) continue;
    const double lse = row_max[n] + std::log(static_cast<double>(row_sum[n]));
    const double squared = a.z_kind == ZKind::kLse ? lse : static_cast<double>(row_max[n]);
    stats.loss += lse - target_logit[n];
    stats.z_loss += a.z_coef * squared * squared;
    stats.log_z += lse;
    stats.max_log_z = std::max(stats.max_log_z, lse);
    stats.max_logit = std::max(stats.max_logit, static_cast<double>(row_max[n]));
    ++stats.valid;
  }
}

template <typename T>
void mask_logits(const LossMask& a) {
  const int32_t* ids = static_cast<const int32_t*>(a.ids.data);
  for (int64_t i = 0; i < a.ids.size(); ++i) {
    const int64_t column = ids[i] - a.vocab_begin;
    if (column < 0 || column >= a.logits.cols) continue;
    for (int64_t n = 0; n < a.logits.rows; ++n)
      store_rounded(-std::numeric_limits<double>::infinity(), row_of<T>(a.logits, n) + column);
  }
}

}  // namespace

void CpuBackend::launch(const LossMask& args, Stream&) {
  with_storage("loss_mask", args.logits.dtype, [&](auto t) { mask_logits<decltype(t)>(args); });
}

ASHLAR_LAUNCH_FOR_ISA(LossMaxCount, loss_max_count_impl)
ASHLAR_LAUNCH_FOR_ISA(LossRowStats, loss_row_stats_impl)

void CpuBackend::launch(const LossRescale& args, Stream&) {
  return args.row_sum.dtype == DType::kFloat64 ? rescale_rows<double>(args) : rescale_rows<float>(args);
}

void CpuBackend::launch(const LossReduce& args, Stream&) {
  return args.row_max.dtype == DType::kFloat64 ? reduce_rows<double>(args) : reduce_rows<float>(args);
}

ASHLAR_LAUNCH_FOR_ISA(LossBackward, loss_backward_impl)
ASHLAR_LAUNCH_FOR_ISA(LossStatsAndGrad, loss_stats_and_grad_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
