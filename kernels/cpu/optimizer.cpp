// Update rules; one function per rule. One pass updates all segments (ranges of tensors) of a rank. Memory-bound. AdamW
// reads grad, master, m, v and writes the last three (28 B per element in fp32, 30 with bf16 weights) for about 15
// flops, a square root and a division. Lion reads grad, master, m and writes the last two (20 B, or 22 with bf16
// weights) for about 8 flops. Each state tensor in bf16 saves 4 B, and costs all of them together a Philox word per
// element. Elements are independent; threads process contiguous parts.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/philox_inl.h"
#include "kernels/cpu/simd_inl.h"

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// A range of elements of one segment, and where it starts in each buffer. W is the type of the weights, S that of the
/// state.
template <typename A, typename W, typename S>
struct UpdateRange {
  int64_t size;
  int64_t packed;  ///< index of the first element in the packed state
  const A* grad;
  A* master;
  W* weights;             ///< null if `master` is the flat weights
  const uint32_t* words;  ///< bf16 state: the random words of the elements, and readable memory for a vector after them
  const StepScalars& scalars;
  double lr, weight_decay, clip_scale;

  S* state(const MutView& tensor) const { return static_cast<S*>(tensor.data) + packed; }
};

/// Stores the values of state tensor number kState, which begin at element i of the range: bf16 rounded stochastically,
/// other types as they are.
template <int kState, class D, typename A, typename W, typename S, class Part>
HWY_INLINE void store_state(D d, VecOf<D> v, S* p, int64_t i, const UpdateRange<A, W, S>& r, Part part) {
  if constexpr (std::is_same_v<S, BF16>) {
    const hn::Rebind<uint32_t, D> du;
    const auto bits = hn::BitCast(du, v);
    const auto word = hn::LoadU(du, r.words + i);
    const auto draw = kState == 0 ? hn::And(word, hn::Set(du, 0xFFFFU)) : hn::ShiftRight<16>(word);
    const auto nan = hn::RebindMask(du, hn::IsNaN(v));
    const auto rounded = hn::And(hn::IfThenElse(nan, bits, hn::Add(bits, draw)), hn::Set(du, 0xFFFF0000U));
    // The upper half of a NaN may be an infinity's; a quiet NaN has a further bit.
    v = hn::BitCast(d, hn::Or(rounded, hn::IfThenElseZero(nan, hn::Set(du, 0x400000U))));
  }
  store(d, v, p + i, part);
}

template <typename A, typename W, typename S>
void adamw(const AdamW& a, const UpdateRange<A, W, S>& r) {
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
  S *m = r.state(a.m), *v = r.state(a.v);
  A* master = r.master;
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
    store_state<0>(d, m_new, m, i, r, part);
    store_state<1>(d, v_new, v, i, r, part);
    store(d, w, master + i, part);
    if (weights != nullptr) store(d, w, weights + i, part);
  });
}

template <typename A, typename W, typename S>
void lion(const Lion& a, const UpdateRange<A, W, S>& r) {
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
  S* m = r.state(a.m);
  A* master = r.master;
  const A* grad = r.grad;
  W* weights = r.weights;
  for_lanes(d, r.size, [&](int64_t i, auto part) ASHLAR_SIMD {
    const auto g = hn::Mul(load(d, grad + i, part), clip);
    const auto m_old = load(d, m + i, part);
    const auto direction = hn::MulAdd(beta1, m_old, hn::Mul(rest1, g));
    const auto move = hn::IfThenZeroElse(hn::Eq(direction, zero), hn::CopySign(step, direction));
    auto w = load(d, master + i, part);
    w = hn::Sub(hn::NegMulAdd(decay, w, w), move);
    store_state<0>(d, hn::MulAdd(beta2, m_old, hn::Mul(rest2, g)), m, i, r, part);
    store(d, w, master + i, part);
    if (weights != nullptr) store(d, w, weights + i, part);
  });
}

/// Calls f(begin, end, words) for parts of the elements [begin, end) of a segment whose random words are in `words`.
template <typename F>
void for_parts_with_words(const Update& a, const UpdateSegment& segment, int64_t begin, int64_t end, const F& f) {
  constexpr int64_t kWords = 1024;
  alignas(64) uint32_t words[kWords + 64];  // more words, for partial Philox blocks and vectors at both ends
  const auto step = static_cast<uint32_t>(struct_of<StepScalars>(a.scalars).philox_step);
  for (int64_t at = begin; at < end;) {
    const int64_t count = std::min({kWords, end - at, segment.contiguous(at)});
    const uint64_t index = segment.global_index(at);
    const uint64_t last_block = (index + static_cast<uint64_t>(count) + 3) / 4;
    philox_words(index / 4, static_cast<int64_t>(last_block - index / 4), segment.rng_stream, step, a.seed, words);
    f(at, at + count, words + index % 4);
    at += count;
  }
}

/// Calls `rule` with every range of every segment, distributed over threads.
template <typename A, typename W, typename S, typename Rule>
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
      const StepScalars& scalars = struct_of<StepScalars>(a.scalars);
      const auto update = [&](int64_t from, int64_t to, const uint32_t* words) {
        const int64_t flat = segment->flat_begin + from, packed = segment->packed_begin + from;
        rule(UpdateRange<A, W, S>{.size = to - from,
                                  .packed = packed,
                                  .grad = static_cast<const A*>(a.grad.data) + flat,
                                  .master = static_cast<A*>(a.master.data) + (a.weights ? packed : flat),
                                  .weights = a.weights ? static_cast<W*>(a.weights.data) + flat : nullptr,
                                  .words = words,
                                  .scalars = scalars,
                                  .lr = scalars.lr * segment->lr_multiplier,
                                  .weight_decay = segment->weight_decay,
                                  .clip_scale = struct_of<ClipState>(a.clip).clip_scale});
      };
      const int64_t first_element = std::max(begin - segment->packed_begin, int64_t{0});
      const int64_t last_element = std::min(end - segment->packed_begin, segment->size);
      if constexpr (std::is_same_v<S, BF16>) {
        for_parts_with_words(a, *segment, first_element, last_element, update);
      } else {
        update(first_element, last_element, nullptr);
      }
    }
  });
}

template <typename Rule>
void update_by_dtype(const Update& a, DType state, Threads& threads, const Rule& rule) {
  if (struct_of<ClipState>(a.clip).skip != 0) return;
  if (a.master.dtype == DType::kFloat64) return update_segments<double, double, double>(a, threads, rule);
  const bool narrow_weights = a.weights && a.weights.dtype == DType::kBFloat16;
  if (state == DType::kBFloat16) {
    return narrow_weights ? update_segments<float, BF16, BF16>(a, threads, rule)
                          : update_segments<float, float, BF16>(a, threads, rule);
  }
  if (narrow_weights) return update_segments<float, BF16, float>(a, threads, rule);
  update_segments<float, float, float>(a, threads, rule);
}

void adamw_impl(const AdamW& a, Threads& threads) {
  update_by_dtype(a.update, a.m.dtype, threads, [&](const auto& range) { adamw(a, range); });
}

void lion_impl(const Lion& a, Threads& threads) {
  update_by_dtype(a.update, a.m.dtype, threads, [&](const auto& range) { lion(a, range); });
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
