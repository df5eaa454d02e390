// LayerNorm and RMSNorm of each row or each head of a row, in one call or in parts (row sums, statistics, application).
// Memory-bound: forward moves 2 storage elements per element (8 B in fp32) for about 8 flops, backward moves 3 (12 B)
// for about 15 flops; a row stays in L1 between the sweeps over it. Threads process contiguous rows. dgamma and dbeta:
// the partial sums of fixed blocks of rows are added in block order, so that the thread count does not change a bit.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/fused_rows.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_NORM_ONCE
#define ASHLAR_KERNELS_CPU_NORM_ONCE
namespace ashlar::cpu {

constexpr int64_t kMinBlockRows = 16;
constexpr int64_t kMaxBlocks = 64;

/// Number of rows per partial sum of dgamma and dbeta. It depends only on the total number of rows.
inline int64_t block_rows(int64_t rows) { return std::max(kMinBlockRows, (rows + kMaxBlocks - 1) / kMaxBlocks); }
inline int64_t num_blocks(int64_t rows) { return (rows + block_rows(rows) - 1) / block_rows(rows); }

/// Offsets of the columns, gains and statistics of each head of a row.
struct Heads {
  int64_t count = 1, width = 0, rows = 0;
  bool own_gains = false;  ///< true if each head has separate gains; false if all heads share them

  int64_t column(int64_t h) const { return h * width; }
  int64_t gain(int64_t h) const { return own_gains ? h * width : 0; }
  int64_t gains() const { return own_gains ? count * width : width; }
  int64_t statistic(int64_t h, int64_t n) const { return h * rows + n; }
};
/// `gamma` has the gains or the biases of the call, or is absent.
inline Heads heads_of(int64_t count, const ConstView& x, const ConstView& gamma) {
  return {.count = count, .width = x.cols / count, .rows = x.rows, .own_gains = gamma && gamma.size() == x.cols};
}

}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Returns the gains of the vector at column c: gamma, 1 + gamma with unit_offset, or 1 if gamma is absent.
template <class D, typename T, class Part>
HWY_INLINE VecOf<D> gain(D d, const T* gamma, bool unit_offset, int64_t c, Part part) {
  using A = hn::TFromD<D>;
  if (gamma == nullptr) return hn::Set(d, A{1});
  const auto g = load(d, gamma + c, part);
  return unit_offset ? hn::Add(g, hn::Set(d, A{1})) : g;
}

/// Computes y = (x - mean) * rstd * gain + beta for one row.
template <typename T, typename A>
HWY_INLINE void apply_row(const T* x, const T* gamma, const T* beta, A mean, A rstd, bool unit_offset, T* y,
                          int64_t cols) {
  const TagOf<T> d;
  const auto mean_v = hn::Set(d, mean);
  const auto rstd_v = hn::Set(d, rstd);
  for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    const auto xhat = hn::Mul(hn::Sub(load(d, x + c, part), mean_v), rstd_v);
    const auto g = gain(d, gamma, unit_offset, c, part);
    store(d, beta != nullptr ? hn::MulAdd(xhat, g, load(d, beta + c, part)) : hn::Mul(xhat, g), y + c, part);
  });
}

template <typename T, typename A>
HWY_INLINE A row_sum(const T* x, int64_t cols) {
  const TagOf<T> d;
  return sum_lanes(d, cols,
                   [&](auto acc, int64_t c, auto part) ASHLAR_SIMD { return hn::Add(acc, load(d, x + c, part)); });
}

template <typename T, typename A>
HWY_INLINE A row_sum_squares(const T* x, A center, int64_t cols) {
  const TagOf<T> d;
  const auto center_v = hn::Set(d, center);
  return sum_lanes(d, cols, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    const auto v = hn::Sub(load(d, x + c, part), center_v);
    return hn::MulAdd(v, v, acc);
  });
}

template <typename T>
void norm_forward_rows(const NormForward& a, int64_t begin, int64_t end) {
  using A = hn::TFromD<TagOf<T>>;
  const Heads heads = heads_of(a.heads, a.x, a.gamma ? a.gamma : a.beta);
  const int64_t cols = heads.width;
  const T* gamma = static_cast<const T*>(a.gamma.data);
  const T* beta = static_cast<const T*>(a.beta.data);
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t h = 0; h < heads.count; ++h) {
      const T* x = row_of<T>(a.x, n) + heads.column(h);
      // 1. mean
      A mean = 0;
      if (a.variant.type == NormType::kLayerNorm) {
        mean = row_sum<T, A>(x, cols) / static_cast<A>(cols);
        static_cast<A*>(a.mean.data)[heads.statistic(h, n)] = mean;
      }
      // 2. rstd
      const A rstd =
          A{1} / std::sqrt(row_sum_squares<T, A>(x, mean, cols) / static_cast<A>(cols) + static_cast<A>(a.variant.eps));
      static_cast<A*>(a.rstd.data)[heads.statistic(h, n)] = rstd;
      // 3. y
      apply_row<T, A>(x, gamma != nullptr ? gamma + heads.gain(h) : nullptr,
                      beta != nullptr ? beta + heads.gain(h) : nullptr, mean, rstd, a.variant.unit_offset,
                      row_of<T>(a.y, n) + heads.column(h), cols);
    }
  }
}

void norm_forward_range(const NormForward& a, int64_t begin, int64_t end) {
  with_storage("norm_forward", a.x.dtype, [&](auto t) { norm_forward_rows<decltype(t)>(a, begin, end); });
}

void norm_forward_impl(const NormForward& a, Threads& threads) {
  parallel_for(threads, a.x.rows, rows_grain(a.x.cols, kCheapGrain),
               [&](int64_t begin, int64_t end) { norm_forward_range(a, begin, end); });
}

void norm_row_stats_impl(const NormRowStats& a, Threads& threads) {
  with_storage("norm_row_stats", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const A* center = static_cast<const A*>(a.center.data);
    A* sum = static_cast<A*>(a.sum.data);
    A* sum_squares = static_cast<A*>(a.sum_squares.data);
    for_rows(threads, a.x, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
      const T* x = row_of<T>(a.x, n);
      if (sum != nullptr) sum[n] = row_sum<T, A>(x, a.x.cols);
      if (sum_squares != nullptr) {
        sum_squares[n] = row_sum_squares<T, A>(x, center != nullptr ? center[n] : A{0}, a.x.cols);
      }
    });
  });
}

void norm_statistics_impl(const NormStatistics& a, Threads& threads) {
  const ConstView& first = a.sum ? a.sum : a.sum_squares;
  with_storage("norm_statistics", first.dtype, [&](auto t) {
    using A = hn::TFromD<TagOf<decltype(t)>>;
    const TagOf<A> d;
    const auto total = hn::Set(d, static_cast<A>(a.c_total));
    const auto eps = hn::Set(d, static_cast<A>(a.eps));
    const auto each = [&](const ConstView& from, const MutView& to, const auto& f) {
      if (!from) return;
      const A* in = static_cast<const A*>(from.data);
      A* out = static_cast<A*>(to.data);
      parallel_for(threads, from.size(), kCheapGrain, [&](int64_t begin, int64_t end) {
        for_lanes(d, end - begin, [&](int64_t c, auto part) ASHLAR_SIMD {
          store(d, f(hn::Div(load(d, in + begin + c, part), total)), out + begin + c, part);
        });
      });
    };
    each(a.sum, a.mean, [](auto v) ASHLAR_SIMD { return v; });
    each(a.sum_squares, a.rstd,
         [&](auto v) ASHLAR_SIMD { return hn::Div(hn::Set(d, A{1}), hn::Sqrt(hn::Add(v, eps))); });
  });
}

void norm_apply_impl(const NormApply& a, Threads& threads) {
  with_storage("norm_apply", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const A* mean = static_cast<const A*>(a.mean.data);
    const A* rstd = static_cast<const A*>(a.rstd.data);
    for_rows(threads, a.x, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
      apply_row<T, A>(row_of<T>(a.x, n), static_cast<const T*>(a.gamma.data), static_cast<const T*>(a.beta.data),
                      mean != nullptr ? mean[n] : A{0}, rstd[n], a.unit_offset, row_of<T>(a.y, n), a.x.cols);
    });
  });
}

/// Computes sum_h, the sum of h over one row, and sum_hx, the sum of h * xhat, where h = dy * gain and xhat is the
/// normalized x.
template <typename T, typename A>
HWY_INLINE void backward_row_sums(const T* dy, const T* x, const T* gamma, bool unit_offset, A mean, A rstd,
                                  int64_t cols, A& sum_h, A& sum_hx) {
  const TagOf<T> d;
  const auto mean_v = hn::Set(d, mean);
  // rstd multiplies the complete sum: one multiplication per row instead of one per element.
  sum_lanes_twice(d, cols, sum_h, sum_hx, [&](auto& h_acc, auto& hx_acc, int64_t c, auto part) ASHLAR_SIMD {
    const auto h = hn::Mul(load(d, dy + c, part), gain(d, gamma, unit_offset, c, part));
    h_acc = hn::Add(h_acc, h);
    hx_acc = hn::MulAdd(h, hn::Sub(load(d, x + c, part), mean_v), hx_acc);
  });
  sum_hx *= rstd;
}

/// Computes dx of one row, stores or adds it by `mode`, and adds the row's contributions to the block's partial sums of
/// dgamma and dbeta. If a pointer to partial sums is null, these sums are not computed.
template <typename T, typename A>
HWY_INLINE void backward_apply_row(const T* dy, const T* x, const T* gamma, bool unit_offset, A mean, A rstd, A mean_h,
                                   A mean_hx, GradMode mode, T* dx, A* dgamma, A* dbeta, int64_t cols) {
  const TagOf<T> d;
  const auto mean_v = hn::Set(d, mean);
  const auto rstd_v = hn::Set(d, rstd);
  const auto mean_h_v = hn::Set(d, mean_h);
  const auto mean_hx_v = hn::Set(d, mean_hx);
  for_lanes(d, cols, [&](int64_t c, auto part) ASHLAR_SIMD {
    const auto dy_v = load(d, dy + c, part);
    const auto xhat = hn::Mul(hn::Sub(load(d, x + c, part), mean_v), rstd_v);
    if (dgamma != nullptr) store(d, hn::MulAdd(dy_v, xhat, load(d, dgamma + c, part)), dgamma + c, part);
    if (dbeta != nullptr) store(d, hn::Add(dy_v, load(d, dbeta + c, part)), dbeta + c, part);
    if (mode == GradMode::kSkip) return;
    const auto h = hn::Mul(dy_v, gain(d, gamma, unit_offset, c, part));
    const auto centred = hn::NegMulAdd(xhat, mean_hx_v, hn::Sub(h, mean_h_v));
    const auto out =
        mode == GradMode::kAccumulate ? hn::MulAdd(rstd_v, centred, load(d, dx + c, part)) : hn::Mul(rstd_v, centred);
    store(d, out, dx + c, part);
  });
}

/// Computes dx and the parameter gradients, for NormBackward and NormBackwardApply. If the row sums are not given,
/// computes them too. If a parameter gradient is wanted, `partials_data` is scratch memory for num_blocks * 2 *
/// heads.gains() numbers.
template <typename T>
void backward_apply(const NormBackwardApply& a, NormType type, const Heads& heads, Threads& threads,
                    void* partials_data) {
  using A = hn::TFromD<TagOf<T>>;
  const int64_t rows = a.x.rows;
  const int64_t gains = heads.gains();
  const T* gamma = static_cast<const T*>(a.gamma.data);
  const A* mean = static_cast<const A*>(a.mean.data);
  const A* rstd = static_cast<const A*>(a.rstd.data);
  const A* given_h = static_cast<const A*>(a.sum_h.data);
  const A* given_hx = static_cast<const A*>(a.sum_hx.data);
  const bool params = a.param_mode != GradMode::kSkip;
  const bool want_dgamma = params && a.dgamma;
  const bool want_dbeta = params && a.dbeta;
  const GradMode dx_mode = a.dx ? a.dx_mode : GradMode::kSkip;
  A* partials = static_cast<A*>(partials_data);
  const int64_t block = block_rows(rows);
  const A inv_c = A{1} / static_cast<A>(a.c_total);
  // 1. dx, and the partial sums of each block of rows
  parallel_for(threads, num_blocks(rows), std::max<int64_t>(1, rows_grain(a.x.cols, kCheapGrain) / block),
               [&](int64_t first_block, int64_t last_block) {
                 for (int64_t b = first_block; b < last_block; ++b) {
                   A* dgamma = want_dgamma ? partials + b * 2 * gains : nullptr;
                   A* dbeta = want_dbeta ? partials + (b * 2 + 1) * gains : nullptr;
                   if (want_dgamma) std::fill_n(dgamma, gains, A{0});
                   if (want_dbeta) std::fill_n(dbeta, gains, A{0});
                   for (int64_t n = b * block; n < std::min(rows, (b + 1) * block); ++n) {
                     for (int64_t h = 0; h < heads.count; ++h) {
                       const T* dy = row_of<T>(a.dy, n) + heads.column(h);
                       const T* x = row_of<T>(a.x, n) + heads.column(h);
                       const T* g = gamma != nullptr ? gamma + heads.gain(h) : nullptr;
                       const int64_t at = heads.statistic(h, n);
                       const A mean_n = mean != nullptr ? mean[at] : A{0};
                       A sum_h = 0;
                       A sum_hx = 0;
                       if (given_hx != nullptr) {
                         sum_h = given_h != nullptr ? given_h[n] : A{0};
                         sum_hx = given_hx[n];
                       } else if (dx_mode != GradMode::kSkip) {
                         backward_row_sums<T, A>(dy, x, g, a.unit_offset, mean_n, rstd[at], heads.width, sum_h, sum_hx);
                         if (type != NormType::kLayerNorm) sum_h = 0;
                       }
                       backward_apply_row<T, A>(dy, x, g, a.unit_offset, mean_n, rstd[at], sum_h * inv_c,
                                                sum_hx * inv_c, dx_mode,
                                                a.dx ? row_of<T>(a.dx, n) + heads.column(h) : nullptr,
                                                want_dgamma ? dgamma + heads.gain(h) : nullptr,
                                                want_dbeta ? dbeta + heads.gain(h) : nullptr, heads.width);
                     }
                   }
                 }
               });
  // 2. the partial sums, added in order
  if (!want_dgamma && !want_dbeta) return;
  parallel_for(threads, gains, std::max<int64_t>(64, kCheapGrain / num_blocks(rows)), [&](int64_t begin, int64_t end) {
    const TagOf<T> d;
    for (int which = 0; which < 2; ++which) {
      if (!(which == 0 ? want_dgamma : want_dbeta)) continue;
      A* out = static_cast<A*>(which == 0 ? a.dgamma.data : a.dbeta.data) + begin;
      const A* in = partials + which * gains + begin;
      for_lanes(d, end - begin, [&](int64_t c, auto part) ASHLAR_SIMD {
        auto sum = hn::Zero(d);
        for (int64_t b = 0; b < num_blocks(rows); ++b) sum = hn::Add(sum, load(d, in + b * 2 * gains + c, part));
        if (a.param_mode == GradMode::kAccumulate) sum = hn::Add(load(d, out + c, part), sum);
        store(d, sum, out + c, part);
      });
    }
  });
}

void norm_backward_apply_impl(const NormBackwardApply& a, NormType type, const Heads& heads, Threads& threads,
                              void* partials) {
  with_storage("norm_backward", a.x.dtype,
               [&](auto t) { backward_apply<decltype(t)>(a, type, heads, threads, partials); });
}

void norm_backward_row_sums_impl(const NormBackwardRowSums& a, Threads& threads) {
  with_storage("norm_backward_row_sums", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    using A = hn::TFromD<TagOf<T>>;
    const A* mean = static_cast<const A*>(a.mean.data);
    const A* rstd = static_cast<const A*>(a.rstd.data);
    A* out_h = static_cast<A*>(a.sum_h.data);
    A* out_hx = static_cast<A*>(a.sum_hx.data);
    for_rows(threads, a.x, kCheapGrain, [&](int64_t n) ASHLAR_SIMD {
      A sum_h = 0;
      A sum_hx = 0;
      backward_row_sums<T, A>(row_of<T>(a.dy, n), row_of<T>(a.x, n), static_cast<const T*>(a.gamma.data), a.unit_offset,
                              mean != nullptr ? mean[n] : A{0}, rstd[n], a.x.cols, sum_h, sum_hx);
      if (out_h != nullptr) out_h[n] = sum_h;
      out_hx[n] = sum_hx;
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
namespace {

int64_t partials_bytes(const NormBackwardApply& a, const Heads& heads) {
  if (a.param_mode == GradMode::kSkip || (!a.dgamma && !a.dbeta)) return 0;
  return num_blocks(a.x.rows) * 2 * heads.gains() * size_of(accumulate_dtype(a.x.dtype));
}

}  // namespace

NormRows norm_forward_rows(Isa isa) { return ASHLAR_FOR_ISA(isa, norm_forward_range); }

ASHLAR_LAUNCH_FOR_ISA(NormForward, norm_forward_impl)
ASHLAR_LAUNCH_FOR_ISA(NormRowStats, norm_row_stats_impl)

void CpuBackend::launch(const NormStatistics& args, Stream&) {
  if (!args.sum && !args.sum_squares) return;
  ASHLAR_FOR_ISA(info_.isa, norm_statistics_impl)(args, threads_);
}

ASHLAR_LAUNCH_FOR_ISA(NormApply, norm_apply_impl)
ASHLAR_LAUNCH_FOR_ISA(NormBackwardRowSums, norm_backward_row_sums_impl)

void CpuBackend::launch(const NormBackward& args, Stream&) {
  const bool layernorm = args.variant.type == NormType::kLayerNorm;
  const Heads heads = heads_of(args.heads, args.x, args.gamma ? args.gamma : ConstView(args.dgamma));
  const NormBackwardApply apply{.dy = args.dy,
                                .x = args.x,
                                .gamma = args.gamma,
                                .mean = layernorm ? args.mean : ConstView{},
                                .rstd = args.rstd,
                                .sum_h = {},
                                .sum_hx = {},
                                .c_total = heads.width,
                                .dx = args.dx,
                                .dgamma = args.dgamma,
                                .dbeta = args.dbeta,
                                .dx_mode = args.dx_mode,
                                .param_mode = args.param_mode,
                                .unit_offset = args.variant.unit_offset};
  const ScopedBlock partials(workspace(), partials_bytes(apply, heads));
  ASHLAR_FOR_ISA(info_.isa, norm_backward_apply_impl)(apply, args.variant.type, heads, threads_, partials.data());
}

void CpuBackend::launch(const NormBackwardApply& args, Stream&) {
  const NormType type = args.sum_h ? NormType::kLayerNorm : NormType::kRmsNorm;
  const Heads whole = heads_of(1, args.x, {});
  const ScopedBlock partials(workspace(), partials_bytes(args, whole));
  ASHLAR_FOR_ISA(info_.isa, norm_backward_apply_impl)(args, type, whole, threads_, partials.data());
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
