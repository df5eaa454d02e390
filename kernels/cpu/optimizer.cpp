// AdamW over flat slabs in one pass, and sums of squares for the gradient norm.
// Memory-bound: AdamW reads grad, master, m, v and writes the last three (28 B an element in fp32, 30 with bf16
// weights) for about 15 flops, a root and a division; sums of squares read 2 to 8 B for 2 flops in double.
// Threads take contiguous pieces of the slab; every element stands alone.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Elements [begin, end) of the slab, all of one segment. W is the weights' type; null weights are not written.
template <typename A, typename W>
void adamw_piece(const AdamW& a, const AdamWSegment& segment, int64_t begin, int64_t end, W* weights) {
  const TagOf<A> d;
  const StepScalars& s = struct_of<StepScalars>(a.scalars);
  const double lr = s.lr * segment.lr_multiplier;
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<A>(value)); };
  const auto clip = set(struct_of<ClipState>(a.clip).clip_scale);
  const auto beta1 = set(a.beta1);
  const auto beta2 = set(a.beta2);
  const auto rest1 = set(1 - a.beta1);
  const auto rest2 = set(1 - a.beta2);
  const auto decay = set(lr * segment.weight_decay);
  const auto step = set(lr / s.beta1_correction);
  const auto inverse_c2 = set(1 / s.beta2_correction);
  const auto eps = set(a.eps);
  const A* grad = static_cast<const A*>(a.grad.data) + begin;
  A* master = static_cast<A*>(a.master.data) + begin;
  A* m = static_cast<A*>(a.m.data) + begin;
  A* v = static_cast<A*>(a.v.data) + begin;
  if (weights != nullptr) weights += begin;
  for_lanes(d, end - begin, [&](int64_t i, auto part) ASHLAR_SIMD {
    const auto g = hn::Mul(load(d, grad + i, part), clip);
    const auto m_new = hn::MulAdd(beta1, load(d, m + i, part), hn::Mul(rest1, g));
    const auto v_new = hn::MulAdd(beta2, load(d, v + i, part), hn::Mul(rest2, hn::Mul(g, g)));
    auto w = load(d, master + i, part);
    w = hn::NegMulAdd(decay, w, w);
    const auto root = hn::Add(hn::Sqrt(hn::Mul(v_new, inverse_c2)), eps);
    w = hn::Sub(w, hn::Div(hn::Mul(step, m_new), root));
    store(d, m_new, m + i, part);
    store(d, v_new, v + i, part);
    store(d, w, master + i, part);
    if (weights != nullptr) store(d, w, weights + i, part);
  });
}

template <typename A, typename W>
void adamw_slab(const AdamW& a, int threads) {
  constexpr int64_t kPiece = 2048;
  const int64_t size = a.master.size();
  W* weights = static_cast<W*>(a.weights.data);
  parallel_for(threads, (size + kPiece - 1) / kPiece, kExpensiveGrain / kPiece, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kPiece;
    const int64_t end = std::min(size, last * kPiece);
    // Segments ascend: skip those that end before this piece.
    auto segment = std::partition_point(a.segments.begin(), a.segments.end(),
                                        [&](const AdamWSegment& g) { return g.offset + g.size <= begin; });
    for (; segment != a.segments.end() && segment->offset < end; ++segment) {
      adamw_piece<A, W>(a, *segment, std::max(begin, segment->offset), std::min(end, segment->offset + segment->size),
                        weights);
    }
  });
}

void adamw_impl(const AdamW& a, int threads) {
  if (a.master.dtype == DType::kFloat64) return adamw_slab<double, double>(a, threads);
  if (a.weights && a.weights.dtype == DType::kBFloat16) return adamw_slab<float, BF16>(a, threads);
  adamw_slab<float, float>(a, threads);
}

template <typename T>
HWY_INLINE double sum_squares_of(const T* x, int64_t count) {
  const hn::ScalableTag<double> d;
  return sum_lanes(d, count, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    if constexpr (std::is_same_v<T, double>) {
      const auto v = load(d, x + c, part);
      return hn::MulAdd(v, v, acc);
    } else {
      const hn::Rebind<float, decltype(d)> df;
      const auto v = hn::PromoteTo(d, load(df, x + c, part));
      return hn::MulAdd(v, v, acc);
    }
  });
}

void sum_squares_impl(const SumSquares& a, int threads) {
  with_storage("sum_squares", a.x.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t size = a.x.size();
    double* partials = static_cast<double*>(a.partials.data);
    parallel_for(threads, a.partials.size(), 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i * SumSquares::kChunk;
        partials[i] =
            sum_squares_of(static_cast<const T*>(a.x.data) + first, std::min(SumSquares::kChunk, size - first));
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
void CpuBackend::launch(const AdamW& args, Stream&) {
  if (struct_of<ClipState>(args.clip).skip != 0) return;
  ASHLAR_FOR_ISA(info_.isa, adamw_impl)(args, threads_);
}

void CpuBackend::launch(const SumSquares& args, Stream&) {
  ASHLAR_FOR_ISA(info_.isa, sum_squares_impl)(args, threads_);
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
