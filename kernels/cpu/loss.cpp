// Cross-entropy over (a slice of) the vocabulary: statistics of rows, the loss, the gradient of logits.
// Statistics sweep a row for its maximum and then, mostly from cache, for its sum of exponentials; the gradient is one
// more sweep that also writes 2 or 4 B an element. Each reads 4 B (fp32) and takes one exponential (about 20 flops) an
// element. Memory-bound with AVX-512, near it with AVX2. Threads take whole rows.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_LOSS_ONCE
#define ASHLAR_KERNELS_CPU_LOSS_ONCE
namespace ashlar::cpu {

/// Row n's target, below 0 where the row does not count.
inline int32_t target_of(const LossShape& shape, int64_t n) { return row_of<int32_t>(shape.targets, 0)[n]; }

/// The target's column in this slice, or -1.
inline int64_t target_column(const LossShape& shape, int64_t n) {
  const int64_t target = target_of(shape, n), column = target - shape.vocab_begin;
  return target >= 0 && column >= 0 && column < shape.valid_cols ? column : -1;
}

}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// f(A()) with A the accumulate type of the logits.
template <typename F>
void with_logits(const ConstView& logits, const F& f) {
  if (logits.dtype == DType::kFloat64) return f(double());
  return f(float());
}

template <typename A>
void row_stats(const LossRowStats& a, int64_t n) {
  constexpr int64_t kBlock = 4096;  // fp32 sums of so many columns are added in double
  const TagOf<A> d;
  const auto scale = hn::Set(d, static_cast<A>(a.shape.logit_scale));
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
  const A* z = row_of<A>(a.logits, n);
  // 1. max(z, acc) drops a NaN; it comes back in the row's sum.
  const A row_max = reduce_lanes(d, a.shape.valid_cols, lowest, MaxOp(),
                                 [&](auto acc, int64_t c, auto part)
                                     ASHLAR_SIMD { return hn::Max(hn::Mul(load(d, z + c, part), scale), acc); });
  // 2. a row without a finite logit sums to 0 and not to exp(-inf + inf); a NaN still shows
  const auto shift = hn::Set(d, row_max == -std::numeric_limits<A>::infinity() ? A{0} : row_max);
  double sum = 0;
  for (int64_t first = 0; first < a.shape.valid_cols; first += kBlock) {
    sum += sum_lanes(d, std::min(kBlock, a.shape.valid_cols - first), [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
      return hn::Add(acc, exp_below_88(d, hn::MulSub(load(d, z + first + c, part), scale, shift)));
    });
  }
  const int64_t target = target_column(a.shape, n);
  static_cast<A*>(a.row_max.data)[n] = row_max;
  static_cast<A*>(a.row_sum.data)[n] = static_cast<A>(sum);
  static_cast<A*>(a.target_logit.data)[n] = target < 0 ? A{0} : z[target] * static_cast<A>(a.shape.logit_scale);
}

void loss_row_stats_impl(const LossRowStats& a, int threads) {
  with_logits(a.logits, [&](auto t) {
    parallel_for(threads, a.logits.rows, rows_grain(a.logits.cols, kExpensiveGrain), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) row_stats<decltype(t)>(a, n);
    });
  });
}

/// `unit`: the gradient of a logit whose softmax is one.
template <typename A, typename T>
void loss_backward_rows(const LossBackward& a, double unit, int64_t begin, int64_t end) {
  const TagOf<A> d;
  const int64_t valid_cols = a.shape.valid_cols;
  const auto scale = hn::Set(d, static_cast<A>(a.shape.logit_scale));
  for (int64_t n = begin; n < end; ++n) {
    const A* z = row_of<A>(a.logits, n);
    T* out = row_of<T>(a.dlogits, n);
    if (target_of(a.shape, n) < 0) {
      std::fill_n(out, a.dlogits.cols, T());
      continue;
    }
    // 1. unit * (1 + 2 z_coef lse) / row_sum multiplies every exponential
    const double row_max = static_cast<const A*>(a.row_max.data)[n];
    const double row_sum = static_cast<const A*>(a.row_sum.data)[n];
    const double weight = unit * (1 + 2 * a.z_coef * (row_max + std::log(row_sum))) / row_sum;
    // 2. the target's entry from its logit, before dlogits may overwrite it
    const int64_t target = target_column(a.shape, n);
    double at_target = 0;
    if (target >= 0) at_target = weight * std::exp(z[target] * a.shape.logit_scale - row_max) - unit;
    // 3. the row
    const auto row_max_v = hn::Set(d, static_cast<A>(row_max));
    const auto weight_v = hn::Set(d, static_cast<A>(weight));
    for_lanes(d, valid_cols, [&](int64_t c, auto part) ASHLAR_SIMD {
      const auto e = exp_below_88(d, hn::MulSub(load(d, z + c, part), scale, row_max_v));
      store(d, hn::Mul(e, weight_v), out + c, part);
    });
    std::fill(out + valid_cols, out + a.dlogits.cols, T());
    if (target >= 0) store_rounded(at_target, out + target);
  }
}

void loss_backward_impl(const LossBackward& a, int threads) {
  const double unit = a.shape.logit_scale * struct_of<StepScalars>(a.scalars).inv_valid_tokens;
  with_logits(a.logits, [&](auto t) {
    using A = decltype(t);
    parallel_for(threads, a.logits.rows, rows_grain(a.logits.cols, kExpensiveGrain), [&](int64_t begin, int64_t end) {
      if (a.dlogits.dtype == DType::kBFloat16) {
        if constexpr (std::is_same_v<A, float>) loss_backward_rows<A, BF16>(a, unit, begin, end);
      } else {
        loss_backward_rows<A, A>(a, unit, begin, end);
      }
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
    // Without a finite logit in this slice the sum is 0, or NaN: either stays.
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
    stats.loss += lse - target_logit[n];
    stats.z_loss += a.z_coef * lse * lse;
    stats.log_z += lse;
    stats.max_log_z = std::max(stats.max_log_z, lse);
    stats.max_logit = std::max(stats.max_logit, static_cast<double>(row_max[n]));
    ++stats.valid;
  }
}

void check_logits(std::string_view where, const ConstView& logits) {
  if (logits.dtype == accumulate_dtype(logits.dtype)) return;
  throw input_error(where, "logits of ", name_of(logits.dtype), " are not supported by the cpu backend; keep them in ",
                    name_of(accumulate_dtype(logits.dtype)));
}

}  // namespace

void CpuBackend::launch(const LossRowStats& args, Stream&) {
  check_logits("loss_row_stats", args.logits);
  ASHLAR_FOR_ISA(info_.isa, loss_row_stats_impl)(args, threads_);
}

void CpuBackend::launch(const LossRescale& args, Stream&) {
  return args.row_sum.dtype == DType::kFloat64 ? rescale_rows<double>(args) : rescale_rows<float>(args);
}

void CpuBackend::launch(const LossReduce& args, Stream&) {
  return args.row_max.dtype == DType::kFloat64 ? reduce_rows<double>(args) : reduce_rows<float>(args);
}

void CpuBackend::launch(const LossBackward& args, Stream&) {
  check_logits("loss_backward", args.logits);
  ASHLAR_FOR_ISA(info_.isa, loss_backward_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
