// Update rules; one function per rule. One pass updates all segments (ranges of tensors) of a rank. Memory-bound. AdamW
// reads grad, master, m, v and writes the last three (28 B per element in fp32, 30 with bf16 weights) for about 15
// flops, a square root and a division. Lion reads grad, master, m and writes the last two (20 B, or 22 with bf16
// weights) for about 8 flops. Elements are independent; threads process contiguous parts.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// A range of elements of one segment, and where it starts in each buffer. W is the type of the weights.
template <typename A, typename W>
struct UpdateRange {
  int64_t size;
  int64_t packed;  ///< index of the first element in the packed state
  const A* grad;
  A* master;
  W* weights;  ///< null if `master` is the flat weights
  const StepScalars& scalars;
  double lr, weight_decay, clip_scale;

  A* state(const MutView& tensor) const { return static_cast<A*>(tensor.data) + packed; }
};

template <typename A, typename W>
void adamw(const AdamW& a, const UpdateRange<A, W>& r) {
  const TagOf<A> d;
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<A>(value)); };
  const auto clip = set(r.clip_scale);
  const auto beta1 = set(a.beta1);
  const auto beta2 = set(a.beta2);
  const auto rest1 = set(1 - a.beta1);
  const auto rest2 = set(1 - a.beta2);
  const auto decay = set(r.lr * r.weight_decay);
  const auto step = set(r.lr / r.scalars.beta1_correction);
  const auto inverse_c2 = set(1 / r.scalars.beta2_correction);
  const auto eps = set(a.eps);
  A *m = r.state(a.m), *v = r.state(a.v), *master = r.master;
  const A* grad = r.grad;
  W* weights = r.weights;
  for_lanes(d, r.size, [&](int64_t i, auto part) ASHLAR_SIMD {
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
void lion(const Lion& a, const UpdateRange<A, W>& r) {
  const TagOf<A> d;
  const auto set = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<A>(value)); };
  const auto clip = set(r.clip_scale);
  const auto beta1 = set(a.beta1);
  const auto beta2 = set(a.beta2);
  const auto rest1 = set(1 - a.beta1);
  const auto rest2 = set(1 - a.beta2);
  const auto decay = set(r.lr * r.weight_decay);
  const auto step = set(r.lr);
  const auto zero = hn::Zero(d);
  A *m = r.state(a.m), *master = r.master;
  const A* grad = r.grad;
  W* weights = r.weights;
  for_lanes(d, r.size, [&](int64_t i, auto part) ASHLAR_SIMD {
    const auto g = hn::Mul(load(d, grad + i, part), clip);
    const auto m_old = load(d, m + i, part);
    const auto direction = hn::MulAdd(beta1, m_old, hn::Mul(rest1, g));
    const auto move = hn::IfThenZeroElse(hn::Eq(direction, zero), hn::CopySign(step, direction));
    auto w = load(d, master + i, part);
    w = hn::Sub(hn::NegMulAdd(decay, w, w), move);
    store(d, hn::MulAdd(beta2, m_old, hn::Mul(rest2, g)), m + i, part);
    store(d, w, master + i, part);
    if (weights != nullptr) store(d, w, weights + i, part);
  });
}

/// Calls `rule` with every range of every segment, distributed over threads.
template <typename A, typename W, typename Rule>
void update_segments(const Update& a, Threads& threads, const Rule& rule) {
  constexpr int64_t kPart = 2048;
  const std::span<const UpdateSegment> segments = table_of<UpdateSegment>(a.segments);
  if (segments.empty()) return;
  const int64_t size = segments.back().packed_begin + segments.back().size;
  parallel_for(threads, (size + kPart - 1) / kPart, kExpensiveGrain / kPart, [&](int64_t first, int64_t last) {
    const int64_t begin = first * kPart, end = std::min(size, last * kPart);  // range of the packed state
    auto segment = std::partition_point(segments.begin(), segments.end(),
                                        [&](const UpdateSegment& g) { return g.packed_begin + g.size <= begin; });
    for (; segment != segments.end() && segment->packed_begin < end; ++segment) {
      const int64_t from = std::max(begin - segment->packed_begin, int64_t{0});
      const int64_t to = std::min(end - segment->packed_begin, segment->size);
      const int64_t flat = segment->flat_begin + from, packed = segment->packed_begin + from;
      const StepScalars& scalars = struct_of<StepScalars>(a.scalars);
      rule(UpdateRange<A, W>{.size = to - from,
                             .packed = packed,
                             .grad = static_cast<const A*>(a.grad.data) + flat,
                             .master = static_cast<A*>(a.master.data) + (a.weights ? packed : flat),
                             .weights = a.weights ? static_cast<W*>(a.weights.data) + flat : nullptr,
                             .scalars = scalars,
                             .lr = scalars.lr * segment->lr_multiplier,
                             .weight_decay = segment->weight_decay,
                             .clip_scale = struct_of<ClipState>(a.clip).clip_scale});
    }
  });
}

template <typename Rule>
void update_by_dtype(const Update& a, Threads& threads, const Rule& rule) {
  if (struct_of<ClipState>(a.clip).skip != 0) return;
  if (a.master.dtype == DType::kFloat64) return update_segments<double, double>(a, threads, rule);
  if (a.weights && a.weights.dtype == DType::kBFloat16) return update_segments<float, BF16>(a, threads, rule);
  update_segments<float, float>(a, threads, rule);
}

void adamw_impl(const AdamW& a, Threads& threads) {
  update_by_dtype(a.update, threads, [&](const auto& range) { adamw(a, range); });
}

void lion_impl(const Lion& a, Threads& threads) {
  update_by_dtype(a.update, threads, [&](const auto& range) { lion(a, range); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
ASHLAR_LAUNCH_FOR_ISA(AdamW, adamw_impl)
ASHLAR_LAUNCH_FOR_ISA(Lion, lion_impl)

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
