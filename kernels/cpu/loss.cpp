// Cross-entropy over (a slice of) the vocabulary: row maxima, sums of exponentials, the loss, the gradient of logits.
// Each part is one sweep over the logits: reads 4 B an element (fp32), the gradient also writes 2 or 4 B; one
// exponential (about 20 flops) an element. Memory-bound with AVX-512, near it with AVX2. Threads take whole rows.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/loss.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_LOSS_ONCE
#define ASHLAR_KERNELS_CPU_LOSS_ONCE
namespace ashlar::cpu {

/// The target's column in this slice, or -1.
inline int64_t target_column(const LossShape& shape, int64_t n) {
  const int64_t column = shape.targets[n] - shape.vocab_begin;
  return shape.targets[n] >= 0 && column >= 0 && column < shape.valid_cols ? column : -1;
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

void loss_row_max_impl(const LossRowMax& a, int threads) {
  with_logits(a.logits, [&](auto t) {
    using A = decltype(t);
    const TagOf<A> d;
    const auto scale = hn::Set(d, static_cast<A>(a.shape.logit_scale));
    parallel_for(threads, a.logits.rows, rows_grain(a.logits.cols, kCheapGrain), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const A* z = row_of<A>(a.logits, n);
        const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
        // max(z, acc) drops a NaN; it comes back in the row's sum.
        static_cast<A*>(a.row_max.data)[n] =
            reduce_lanes(d, a.shape.valid_cols, lowest, MaxOp(), [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
              return hn::Max(hn::Mul(load(d, z + c, part), scale), acc);
            });
      }
    });
  });
}

void loss_row_sums_impl(const LossRowSums& a, int threads) {
  constexpr int64_t kBlock = 4096;  // fp32 sums of so many columns are added in double
  with_logits(a.logits, [&](auto t) {
    using A = decltype(t);
    const TagOf<A> d;
    const auto scale = hn::Set(d, static_cast<A>(a.shape.logit_scale));
    parallel_for(threads, a.logits.rows, rows_grain(a.logits.cols, kDearGrain), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const A row_max = static_cast<const A*>(a.row_max.data)[n];
        const auto row_max_v = hn::Set(d, row_max);
        double sum = 0;
        for (int64_t first = 0; first < a.shape.valid_cols; first += kBlock) {
          const A* z = row_of<A>(a.logits, n) + first;
          sum += sum_lanes(d, std::min(kBlock, a.shape.valid_cols - first),
                           [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
                             const auto shifted = hn::MulSub(load(d, z + c, part), scale, row_max_v);
                             return hn::Add(acc, exp_below_88(d, shifted));
                           });
        }
        static_cast<A*>(a.row_sum.data)[n] = static_cast<A>(sum);
        const int64_t target = target_column(a.shape, n);
        static_cast<A*>(a.target_logit.data)[n] =
            target < 0 ? A{0} : row_of<A>(a.logits, n)[target] * static_cast<A>(a.shape.logit_scale);
      }
    });
  });
}

template <typename A, typename T>
void loss_backward_rows(const LossBackward& a, int64_t begin, int64_t end) {
  const TagOf<A> d;
  const int64_t valid_cols = a.shape.valid_cols;
  const double unit = a.shape.logit_scale * a.scalars->inv_valid_tokens;
  const auto scale = hn::Set(d, static_cast<A>(a.shape.logit_scale));
  for (int64_t n = begin; n < end; ++n) {
    const A* z = row_of<A>(a.logits, n);
    T* out = row_of<T>(a.dlogits, n);
    if (a.shape.targets[n] < 0) {
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
  with_logits(a.logits, [&](auto t) {
    using A = decltype(t);
    parallel_for(threads, a.logits.rows, rows_grain(a.logits.cols, kDearGrain), [&](int64_t begin, int64_t end) {
      if (a.dlogits.dtype == DType::kBFloat16) {
        if constexpr (std::is_same_v<A, float>) loss_backward_rows<A, BF16>(a, begin, end);
      } else {
        loss_backward_rows<A, A>(a, begin, end);
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

HWY_EXPORT(loss_row_max_impl);
HWY_EXPORT(loss_row_sums_impl);
HWY_EXPORT(loss_backward_impl);

void check_shape(std::string_view where, const ConstView& logits, const LossShape& shape) {
  if (shape.softcap != 0) {
    throw input_error(where, "softcap = ", shape.softcap, " is not served by the cpu backend; set it to 0 (none)");
  }
  ASHLAR_CHECK(logits.dtype == DType::kFloat32 || logits.dtype == DType::kFloat64, where, ": logits hold ",
               name_of(logits.dtype));
  check_view(where, "logits", logits, logits.rows, logits.cols, logits.dtype);
  ASHLAR_CHECK(shape.valid_cols >= 0 && shape.valid_cols <= logits.cols, where, ": valid_cols = ", shape.valid_cols,
               " cols = ", logits.cols);
  ASHLAR_CHECK(shape.targets != nullptr || logits.rows == 0, where, ": targets are absent");
}

template <typename A>
void reduce_rows(const LossReduce& a) {
  const A* row_max = static_cast<const A*>(a.row_max.data);
  const A* row_sum = static_cast<const A*>(a.row_sum.data);
  const A* target_logit = static_cast<const A*>(a.target_logit.data);
  LossStats& stats = *a.stats;
  for (int64_t n = 0; n < a.row_max.size(); ++n) {
    if (a.shape.targets[n] < 0) continue;
    const double lse = row_max[n] + std::log(static_cast<double>(row_sum[n]));
    stats.loss += lse - target_logit[n];
    stats.z_loss += a.z_coef * lse * lse;
    stats.log_z += lse;
    stats.max_log_z = std::max(stats.max_log_z, lse);
    stats.max_logit = std::max(stats.max_logit, static_cast<double>(row_max[n]));
    ++stats.valid;
  }
}

}  // namespace

void CpuBackend::loss_row_max(const LossRowMax& args, Stream&) {
  constexpr std::string_view kWhere = "loss_row_max";
  check_shape(kWhere, args.logits, args.shape);
  check_vector(kWhere, "row_max", args.row_max, args.logits.rows, args.logits.dtype);
  HWY_DYNAMIC_DISPATCH(loss_row_max_impl)(args, threads_);
}

void CpuBackend::loss_row_sums(const LossRowSums& args, Stream&) {
  constexpr std::string_view kWhere = "loss_row_sums";
  check_shape(kWhere, args.logits, args.shape);
  check_vector(kWhere, "row_max", args.row_max, args.logits.rows, args.logits.dtype);
  check_vector(kWhere, "row_sum", args.row_sum, args.logits.rows, args.logits.dtype);
  check_vector(kWhere, "target_logit", args.target_logit, args.logits.rows, args.logits.dtype);
  HWY_DYNAMIC_DISPATCH(loss_row_sums_impl)(args, threads_);
}

void CpuBackend::loss_reduce(const LossReduce& args, Stream&) {
  constexpr std::string_view kWhere = "loss_reduce";
  if (args.shape.softcap != 0) {
    throw input_error(kWhere, "softcap = ", args.shape.softcap,
                      " is not served by the cpu backend; set it to 0 (none)");
  }
  ASHLAR_CHECK(args.stats != nullptr, "stats are absent");
  ASHLAR_CHECK(args.shape.targets != nullptr || args.row_max.size() == 0, "targets are absent");
  check_vector(kWhere, "row_sum", args.row_sum, args.row_max.size(), args.row_max.dtype);
  check_vector(kWhere, "target_logit", args.target_logit, args.row_max.size(), args.row_max.dtype);
  if (args.row_max.dtype == DType::kFloat64) {
    reduce_rows<double>(args);
  } else {
    check_vector(kWhere, "row_max", args.row_max, args.row_max.size(), DType::kFloat32);
    reduce_rows<float>(args);
  }
}

void CpuBackend::loss_backward(const LossBackward& args, Stream&) {
  constexpr std::string_view kWhere = "loss_backward";
  check_shape(kWhere, args.logits, args.shape);
  check_vector(kWhere, "row_max", args.row_max, args.logits.rows, args.logits.dtype);
  check_vector(kWhere, "row_sum", args.row_sum, args.logits.rows, args.logits.dtype);
  ASHLAR_CHECK(accumulate_dtype(args.dlogits.dtype) == args.logits.dtype, "dlogits hold ", name_of(args.dlogits.dtype),
               ", logits ", name_of(args.logits.dtype));
  check_view(kWhere, "dlogits", args.dlogits, args.logits.rows, args.logits.cols, args.dlogits.dtype);
  ASHLAR_CHECK(args.scalars != nullptr, "scalars are absent");
  HWY_DYNAMIC_DISPATCH(loss_backward_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
