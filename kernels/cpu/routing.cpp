// The router: choices and weights of rows, their gradient, statistics of sequences, the balance loss.
// route_forward, for each row of E logits:
//   1. scores, where the choice or the weights need all of them: one exponential per logit
//   2. selection values as integer keys; of groups, the best ones stay
//   3. k searches for the largest key
//   4. weights, from the k chosen scores
// route_backward: 1. scores again, 2. the weights and the gradients of the chosen scores, 3. dlogits, 4. dexpert_scale.
// router_statistics: sums over blocks of rows, then over the blocks of a sequence, in ascending order.
// balance_loss: a few flops for each number of [S, E].
// Traffic: forward reads 4 B per logit (fp32) and writes 8 B per choice, backward moves 8 B per logit, statistics read
// 4 B. Bound by arithmetic: per logit, about 20 flops for an exponential and two comparisons for each choice of the
// row. A row stays in L1.

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/routing.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd_inl.h"
#include "kernels/cpu/simd_math_inl.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_ops.h"

#ifndef ASHLAR_KERNELS_CPU_ROUTING_ONCE
#define ASHLAR_KERNELS_CPU_ROUTING_ONCE
namespace ashlar::cpu {

/// A selection value as an integer: integers have the order of the values, and equal values (also 0 and -0) are equal
/// integers. NaN is below all other values, kTakenKey below NaN.
template <typename A>
using KeyOf = std::conditional_t<sizeof(A) == 8, int64_t, int32_t>;
template <typename K>
inline constexpr K kTakenKey = std::numeric_limits<K>::min();
template <typename K>
inline constexpr K kNanKey = kTakenKey<K> + 1;

template <typename A>
KeyOf<A> key_of(A value) {
  using K = KeyOf<A>;
  if (value != value) return kNanKey<K>;
  const K bits = std::bit_cast<K>(value + A{0});  // -0 becomes 0
  return bits < 0 ? bits ^ std::numeric_limits<K>::max() : bits;
}
template <typename A>
A value_of(KeyOf<A> key) {
  using K = KeyOf<A>;
  if (key == kNanKey<K>) return std::numeric_limits<A>::quiet_NaN();
  return std::bit_cast<A>(key < 0 ? static_cast<K>(key ^ std::numeric_limits<K>::max()) : key);
}

/// Scratch memory of one thread: arrays with room for a number per expert.
struct RouterScratch {
  static constexpr int64_t kArrays = 6;
  static int64_t padded(int64_t experts) { return (experts + 31) / 32 * 32; }  // whole vectors of every type
  static int64_t bytes(int64_t experts, DType dtype) { return kArrays * padded(experts) * size_of(dtype); }

  template <typename T>
  T* array(int64_t index) const {
    return reinterpret_cast<T*>(data) + index * length;
  }

  std::byte* data;
  int64_t length;
};

/// Number of rows of a partial sum. It depends only on the number of rows.
inline int64_t router_block(int64_t rows) { return std::max<int64_t>(32, (rows + 63) / 64); }
inline int64_t router_blocks(int64_t rows) { return (rows + router_block(rows) - 1) / router_block(rows); }

inline bool has_softmax(const RouterRule& rule) { return rule.score == RouterScore::kSoftmax; }
/// True if weights are the softmax over the chosen logits.
inline bool from_chosen_logits(const RouterRule& rule) {
  return has_softmax(rule) && rule.renormalize && rule.sum_floor == 0 && rule.sum_eps == 0;
}
/// True if the selection values are scores and not logits.
inline bool selects_by_score(const RouteForward& a) {
  return a.selection_bias || (a.rule.groups > 1 && a.rule.group_score == GroupScore::kTopTwo);
}

/// Number of partial sums of the statistics: two per block of rows, and two per expert if a sequence has more than one
/// block.
inline int64_t router_partials(const RouterStatistics& a) {
  const int64_t blocks = router_blocks(a.sequence_rows);
  return a.counts.rows * blocks * (2 + (blocks > 1 ? 2 * a.logits.cols : 0));
}

/// A sum of scores that all underflow counts as 1.
template <typename A>
A divisor_of(A sum) {
  return sum == A{0} ? A{1} : sum;
}

inline double inv_tokens(const ConstView& scalars) { return scalars ? struct_of<StepScalars>(scalars).inv_tokens : 1; }

/// Returns the expert_scale of an expert, 1 if there is none.
template <typename A>
A scale_of(const ConstView& expert_scale, int64_t expert) {
  if (!expert_scale) return 1;
  if (expert_scale.dtype == DType::kBFloat16) {
    return static_cast<A>(static_cast<float>(static_cast<const BF16*>(expert_scale.data)[expert]));
  }
  return static_cast<const A*>(expert_scale.data)[expert];
}

/// Calls f(item, scratch) for all items, each thread with its own scratch memory.
template <typename F>
void for_router_items(Threads& threads, int64_t items, int64_t grain, int64_t experts, DType dtype, std::byte* scratch,
                      const F& f) {
  const int64_t parts = std::clamp<int64_t>(items / std::max<int64_t>(grain, 1), 1, threads.size());
  threads.run(static_cast<int>(parts), [&](int thread, int count) {
    const RouterScratch mine{.data = scratch + thread * RouterScratch::bytes(experts, dtype),
                             .length = RouterScratch::padded(experts)};
    const Range range = part_of(items, count, thread);
    for (int64_t item = range.begin; item < range.end; ++item) f(item, mine);
  });
}

}  // namespace ashlar::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Calls f(A()), where A is the type of the logits, fp32 or fp64.
template <typename F>
void with_router_logits(const ConstView& logits, const F& f) {
  return logits.dtype == DType::kFloat64 ? f(double()) : f(float());
}

struct SumOfExp {
  double largest, sum;
  double log() const { return largest + std::log(sum); }
};

/// Writes the softmax of n logits to p, which may be `logits`.
template <typename A>
HWY_INLINE SumOfExp softmax_row(const A* logits, int64_t n, A* p) {
  const TagOf<A> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<A>::infinity());
  // max(x, acc) drops NaN, but the sum keeps it.
  const A largest = reduce_lanes(d, n, lowest, MaxOp(), [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    return hn::Max(load(d, logits + c, part), acc);
  });
  const auto shift = hn::Set(d, largest);
  const A sum = sum_lanes(d, n, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    const auto e = exp_below_88(d, hn::Sub(load(d, logits + c, part), shift));
    store(d, e, p + c, part);
    return hn::Add(acc, e);
  });
  const auto sum_v = hn::Set(d, sum);
  for_lanes(d, n,
            [&](int64_t c, auto part) ASHLAR_SIMD { store(d, hn::Div(load(d, p + c, part), sum_v), p + c, part); });
  return {.largest = largest, .sum = sum};
}

/// Writes the sigmoid s of n logits and, if `rest` is not null, 1 - s. NaN stays NaN in s.
template <typename A>
HWY_INLINE void sigmoid_row(const A* logits, int64_t n, A* s, A* rest) {
  const TagOf<A> d;
  for_lanes(d, n, [&](int64_t c, auto part) ASHLAR_SIMD {
    const auto x = load(d, logits + c, part);
    VecOf<TagOf<A>> value, complement;
    logistic(d, x, value, complement);
    store(d, hn::IfThenElse(hn::Eq(x, x), value, x), s + c, part);
    if (rest != nullptr) store(d, complement, rest + c, part);
  });
}

template <typename A>
HWY_INLINE A sum_row(const A* x, int64_t n) {
  const TagOf<A> d;
  return sum_lanes(d, n,
                   [&](auto acc, int64_t c, auto part) ASHLAR_SIMD { return hn::Add(acc, load(d, x + c, part)); });
}

template <typename A>
HWY_INLINE A dot_row(const A* x, const A* y, int64_t n) {
  const TagOf<A> d;
  return sum_lanes(d, n, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    return hn::MulAdd(load(d, x + c, part), load(d, y + c, part), acc);
  });
}

template <typename A>
HWY_INLINE bool has_nan(const A* x, int64_t n) {
  const TagOf<A> d;
  return sum_lanes(d, n, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
           const auto v = load(d, x + c, part);
           return hn::Add(acc, hn::IfThenZeroElse(hn::Eq(v, v), hn::Set(d, A{1})));
         }) > 0;
}

/// Returns the lowest index of the largest key. `padded` is a multiple of the lanes; not all keys are taken.
template <typename K>
HWY_INLINE int64_t first_largest(const K* keys, int64_t padded) {
  const hn::ScalableTag<K> d;
  constexpr int64_t kN = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<K>()));
  auto best = hn::Load(d, keys);
  for (int64_t i = kN; i < padded; i += kN) best = hn::Max(best, hn::Load(d, keys + i));
  const auto largest = hn::Set(d, fold(d, best, MaxOp()));
  for (int64_t i = 0;; i += kN) {
    const auto equal = hn::Eq(hn::Load(d, keys + i), largest);
    if (!hn::AllFalse(d, equal)) return i + static_cast<int64_t>(hn::FindKnownFirstTrue(d, equal));
  }
}

/// Writes the keys of the selection values values[e] + bias[e]; bias may be null. Completes the last vector by taken
/// keys.
template <typename A>
HWY_INLINE void write_keys(const A* values, const A* bias, int64_t n, KeyOf<A>* keys) {
  using K = KeyOf<A>;
  const TagOf<A> d;
  const hn::RebindToSigned<TagOf<A>> dk;
  for_lanes(d, n, [&](int64_t c, auto part) ASHLAR_SIMD {
    auto v = load(d, values + c, part);
    if (bias != nullptr) v = hn::Add(v, load(d, bias + c, part));
    const auto bits = hn::BitCast(dk, hn::Add(v, hn::Zero(d)));
    const auto flip = hn::And(hn::BroadcastSignBit(bits), hn::Set(dk, std::numeric_limits<K>::max()));
    const auto ordered = hn::RebindMask(dk, hn::Eq(v, v));
    hn::Store(hn::IfThenElse(ordered, hn::Xor(bits, flip), hn::Set(dk, kNanKey<K>)), dk, keys + c);
  });
  std::fill(keys + n, keys + RouterScratch::padded(n), kTakenKey<K>);
}

/// Takes the keys of all groups but the best ones.
template <typename A>
HWY_INLINE void keep_best_groups(const RouterRule& rule, int64_t experts, KeyOf<A>* keys, KeyOf<A>* of_groups) {
  using K = KeyOf<A>;
  const int64_t width = experts / rule.groups, padded = RouterScratch::padded(rule.groups);
  std::fill_n(of_groups, padded, kTakenKey<K>);
  for (int64_t g = 0; g < rule.groups; ++g) {
    K best = kTakenKey<K>, second = kTakenKey<K>;
    for (const K* key = keys + g * width; key < keys + (g + 1) * width; ++key) {
      second = std::max(second, std::min(best, *key));
      best = std::max(best, *key);
    }
    of_groups[g] = rule.group_score == GroupScore::kMax ? best : key_of<A>(value_of<A>(best) + value_of<A>(second));
  }
  for (int64_t i = 0; i < rule.top_groups; ++i) of_groups[first_largest(of_groups, padded)] = kTakenKey<K>;
  for (int64_t g = 0; g < rule.groups; ++g) {
    if (of_groups[g] != kTakenKey<K>) std::fill_n(keys + g * width, width, kTakenKey<K>);
  }
}

/// The weights of a row before `scale` and expert_scale.
template <typename A>
struct ChosenWeights {
  A sum = 1;      ///< of the chosen scores
  A divisor = 1;  ///< of the chosen scores
};

/// Computes the weights q[j] of the chosen experts from their scores or, by the rule, from their logits.
template <typename A>
HWY_INLINE ChosenWeights<A> chosen_weights(const RouterRule& rule, const A* logits, const A* scores,
                                           const int32_t* choices, int64_t k, A* q) {
  ChosenWeights<A> of_row;
  if (from_chosen_logits(rule)) {
    for (int64_t j = 0; j < k; ++j) q[j] = logits[choices[j]];
    softmax_row(q, k, q);
    return of_row;
  }
  for (int64_t j = 0; j < k; ++j) q[j] = scores[choices[j]];
  if (!rule.renormalize) return of_row;
  of_row.sum = 0;
  for (int64_t j = 0; j < k; ++j) of_row.sum += q[j];
  of_row.divisor = divisor_of(std::max(of_row.sum, static_cast<A>(rule.sum_floor)) + static_cast<A>(rule.sum_eps));
  for (int64_t j = 0; j < k; ++j) q[j] /= of_row.divisor;
  return of_row;
}

template <typename A>
void route_row(const RouteForward& a, int64_t n, const RouterScratch& scratch) {
  const int64_t E = a.logits.cols, k = a.choices.cols;
  const A* logits = row_of<A>(a.logits, n);
  int32_t* choices = row_of<int32_t>(a.choices, n);
  A* weights = row_of<A>(a.weights, n);
  A* scores = scratch.array<A>(0);
  // 1. scores
  const bool by_score = selects_by_score(a) && !a.forced;
  if (by_score || !from_chosen_logits(a.rule)) {
    if (has_softmax(a.rule)) {
      softmax_row(logits, E, scores);
    } else {
      sigmoid_row<A>(logits, E, scores, nullptr);
    }
  }
  if (a.forced) {
    std::copy_n(row_of<int32_t>(a.forced, n), k, choices);
  } else {
    // 2. selection values
    KeyOf<A>* keys = scratch.array<KeyOf<A>>(1);
    write_keys(by_score ? scores : logits, static_cast<const A*>(a.selection_bias.data), E, keys);
    if (a.rule.top_groups < a.rule.groups) keep_best_groups<A>(a.rule, E, keys, scratch.array<KeyOf<A>>(2));
    // 3. choices
    for (int64_t j = 0; j < k; ++j) {
      const int64_t expert = first_largest(keys, RouterScratch::padded(E));
      choices[j] = static_cast<int32_t>(expert);
      keys[expert] = kTakenKey<KeyOf<A>>;
    }
  }
  // 4. weights
  if (has_nan(logits, E)) {
    std::fill_n(weights, k, std::numeric_limits<A>::quiet_NaN());
    return;
  }
  A* q = scratch.array<A>(3);
  chosen_weights(a.rule, logits, scores, choices, k, q);
  for (int64_t j = 0; j < k; ++j) {
    weights[j] = static_cast<A>(a.rule.scale) * q[j] * scale_of<A>(a.expert_scale, choices[j]);
  }
}

void route_forward_impl(const RouteForward& a, Threads& threads, std::byte* scratch) {
  with_router_logits(a.logits, [&](auto t) {
    for_router_items(threads, a.logits.rows, rows_grain(a.logits.cols, kExpensiveGrain), a.logits.cols, a.logits.dtype,
                     scratch, [&](int64_t n, const RouterScratch& mine) { route_row<decltype(t)>(a, n, mine); });
  });
}

/// Computes dlogits of row n and adds the row's part of dexpert_scale to scale_sums, if that is not null. z_scale is
/// that of the call, times inv_tokens.
template <typename A>
void route_backward_row(const RouteBackward& a, double z_scale, int64_t n, const RouterScratch& scratch,
                        A* scale_sums) {
  const TagOf<A> d;
  const RouterRule& rule = a.rule;
  const int64_t E = a.logits.cols, k = a.choices.cols;
  const bool softmax = has_softmax(rule), from_chosen = from_chosen_logits(rule);
  const A* logits = row_of<A>(a.logits, n);
  const int32_t* choices = row_of<int32_t>(a.choices, n);
  const A* dweights = row_of<A>(a.dweights, n);
  const A* balance = a.balance ? row_of<A>(a.balance, n / a.balance_rows) : nullptr;
  A* out = row_of<A>(a.dlogits, n);
  if (has_nan(logits, E)) {
    constexpr A kNan = std::numeric_limits<A>::quiet_NaN();
    std::fill_n(out, E, kNan);
    for (int64_t j = 0; j < k && scale_sums != nullptr; ++j) scale_sums[choices[j]] = kNan;
    return;
  }
  // 1. scores
  A* probabilities = scratch.array<A>(0);
  A* sigmoids = scratch.array<A>(1);
  A* complements = scratch.array<A>(2);
  const bool needs_softmax = (softmax && (!from_chosen || balance != nullptr)) || z_scale != 0;
  A z = 0;  // z_scale * lse
  if (needs_softmax) {
    const SumOfExp sum = softmax_row(logits, E, probabilities);
    if (z_scale != 0) z = static_cast<A>(z_scale * sum.log());
  }
  if (!softmax) sigmoid_row(logits, E, sigmoids, complements);
  // 2. the weights q and the gradients dq of the chosen scores, or of the chosen logits
  A* q = scratch.array<A>(3);
  A* dq = scratch.array<A>(4);
  const ChosenWeights<A> chosen = chosen_weights(rule, logits, softmax ? probabilities : sigmoids, choices, k, q);
  A dot = 0;  // sum of dq q
  for (int64_t j = 0; j < k; ++j) {
    const A dweight = dweights[j] * static_cast<A>(rule.scale);
    if (scale_sums != nullptr) scale_sums[choices[j]] += dweight * q[j];
    dq[j] = dweight * scale_of<A>(a.expert_scale, choices[j]);
    dot += dq[j] * q[j];
  }
  if (from_chosen) {
    for (int64_t j = 0; j < k; ++j) dq[j] = q[j] * (dq[j] - dot);
  } else if (rule.renormalize) {
    if (!(chosen.sum >= static_cast<A>(rule.sum_floor))) dot = 0;  // the divisor is constant
    for (int64_t j = 0; j < k; ++j) dq[j] = (dq[j] - dot) / chosen.divisor;
  }
  // 3. dlogits
  if (softmax && !needs_softmax) {
    std::fill_n(out, E, A{0});
  } else {
    A* grad = scratch.array<A>(5);  // of the scores
    if (balance == nullptr) {
      std::fill_n(grad, E, A{0});
    } else if (softmax) {
      std::copy_n(balance, E, grad);
    } else {
      const auto total = hn::Set(d, divisor_of(sum_row(sigmoids, E)));
      const auto mean = hn::Div(hn::Set(d, dot_row(balance, sigmoids, E)), total);
      for_lanes(d, E, [&](int64_t c, auto part) ASHLAR_SIMD {
        store(d, hn::Div(hn::Sub(load(d, balance + c, part), mean), total), grad + c, part);
      });
    }
    for (int64_t j = 0; j < k && !from_chosen; ++j) grad[choices[j]] += dq[j];
    if (softmax) {
      const auto shift = hn::Set(d, z - dot_row(probabilities, grad, E));
      for_lanes(d, E, [&](int64_t c, auto part) ASHLAR_SIMD {
        store(d, hn::Mul(load(d, probabilities + c, part), hn::Add(load(d, grad + c, part), shift)), out + c, part);
      });
    } else {
      const auto z_v = hn::Set(d, z);
      for_lanes(d, E, [&](int64_t c, auto part) ASHLAR_SIMD {
        const auto slope = hn::Mul(load(d, sigmoids + c, part), load(d, complements + c, part));
        auto g = hn::Mul(slope, load(d, grad + c, part));
        if (needs_softmax) g = hn::MulAdd(z_v, load(d, probabilities + c, part), g);
        store(d, g, out + c, part);
      });
    }
  }
  for (int64_t j = 0; j < k && from_chosen; ++j) out[choices[j]] += dq[j];
}

/// `partials` is null, or scratch memory for a number per expert and block of rows.
void route_backward_impl(const RouteBackward& a, Threads& threads, std::byte* scratch, void* partials) {
  const int64_t rows = a.logits.rows, E = a.logits.cols, block = router_block(rows);
  const double z_scale = a.z_scale * inv_tokens(a.scalars);
  with_router_logits(a.logits, [&](auto t) {
    using A = decltype(t);
    A* const sums = static_cast<A*>(partials);
    for_router_items(threads, router_blocks(rows), rows_grain(E, kExpensiveGrain) / block, E, a.logits.dtype, scratch,
                     [&](int64_t b, const RouterScratch& mine) {
                       A* const of_block = sums == nullptr ? nullptr : sums + b * E;
                       if (of_block != nullptr) std::fill_n(of_block, E, A{0});
                       for (int64_t n = b * block; n < std::min(rows, (b + 1) * block); ++n) {
                         route_backward_row<A>(a, z_scale, n, mine, of_block);
                       }
                     });
    // 4. dexpert_scale: the sums of the blocks, in order
    if (sums == nullptr) return;
    const TagOf<A> d;
    A* out = static_cast<A*>(a.dexpert_scale.data);
    for_lanes(d, E, [&](int64_t c, auto part) ASHLAR_SIMD {
      auto sum = hn::Zero(d);
      for (int64_t b = 0; b < router_blocks(rows); ++b) sum = hn::Add(sum, load(d, sums + b * E + c, part));
      if (a.scale_mode == GradMode::kAccumulate) sum = hn::Add(load(d, out + c, part), sum);
      store(d, sum, out + c, part);
    });
  });
}

/// to[e] += from[e]
template <typename T>
HWY_INLINE void add_doubles(const T* from, int64_t n, double* to) {
  const hn::ScalableTag<double> d;
  for_lanes(d, n, [&](int64_t c, auto part) ASHLAR_SIMD {
    if constexpr (std::is_same_v<T, double>) {
      store(d, hn::Add(load(d, to + c, part), load(d, from + c, part)), to + c, part);
    } else {
      const hn::Rebind<float, decltype(d)> df;
      store(d, hn::Add(load(d, to + c, part), hn::PromoteTo(d, load(df, from + c, part))), to + c, part);
    }
  });
}

/// Adds the statistics of row n: counts[e] and scores[e], and sums of lse^2 and of entropies in all[0] and all[1].
template <typename A>
void add_row_statistics(const RouterStatistics& a, int64_t n, const RouterScratch& scratch, double* counts,
                        double* scores, double* all) {
  const TagOf<A> d;
  const int64_t E = a.logits.cols;
  const bool softmax = a.score == RouterScore::kSoftmax;
  const A* logits = row_of<A>(a.logits, n);
  const int32_t* choices = row_of<int32_t>(a.choices, n);
  A* p = scratch.array<A>(0);
  for (int64_t j = 0; j < a.choices.cols; ++j) counts[choices[j]] += 1;
  if (softmax || a.lse_squares) {
    const double lse = softmax_row(logits, E, p).log();
    all[0] += lse * lse;
  }
  if (!softmax) {
    sigmoid_row<A>(logits, E, p, nullptr);
    const auto total = hn::Set(d, divisor_of(sum_row(p, E)));
    for_lanes(d, E,
              [&](int64_t c, auto part) ASHLAR_SIMD { store(d, hn::Div(load(d, p + c, part), total), p + c, part); });
  }
  add_doubles(p, E, scores);
  if (!a.entropy) return;
  all[1] -= sum_lanes(d, E, [&](auto acc, int64_t c, auto part) ASHLAR_SIMD {
    const auto v = load(d, p + c, part);
    return hn::Add(acc, hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), hn::Mul(v, hn::Log(d, v))));
  });
}

/// `partials` is scratch memory for router_partials(a) numbers: sums of blocks of rows.
void router_statistics_impl(const RouterStatistics& a, Threads& threads, std::byte* scratch, double* partials) {
  const int64_t E = a.logits.cols, rows = a.logits.rows, length = a.sequence_rows, sequences = a.counts.rows;
  const int64_t block = router_block(length), blocks = router_blocks(length);
  double* const of_all = partials;                               // [sequences * blocks, 2]
  double* const of_experts = partials + 2 * sequences * blocks;  // [sequences * blocks, 2, E], or nothing
  // 1. sums of blocks of rows
  with_router_logits(a.logits, [&](auto t) {
    using A = decltype(t);
    for_router_items(threads, sequences * blocks, rows_grain(E, kExpensiveGrain) / block, E, a.logits.dtype, scratch,
                     [&](int64_t item, const RouterScratch& mine) {
                       const int64_t s = item / blocks, begin = s * length + item % blocks * block;
                       double* const own = of_experts + item * 2 * E;
                       double* const counts = blocks == 1 ? row_of<double>(a.counts, s) : own;
                       double* const scores = blocks == 1 ? row_of<double>(a.scores, s) : own + E;
                       double* const all = of_all + 2 * item;
                       std::fill_n(counts, E, 0.0);
                       std::fill_n(scores, E, 0.0);
                       std::fill_n(all, 2, 0.0);
                       for (int64_t n = begin; n < std::min({rows, (s + 1) * length, begin + block}); ++n) {
                         add_row_statistics<A>(a, n, mine, counts, scores, all);
                       }
                     });
  });
  // 2. sums of sequences
  for (int64_t s = 0; s < sequences && blocks > 1; ++s) {
    double* const counts = row_of<double>(a.counts, s);
    double* const scores = row_of<double>(a.scores, s);
    std::fill_n(counts, E, 0.0);
    std::fill_n(scores, E, 0.0);
    for (int64_t item = s * blocks; item < (s + 1) * blocks; ++item) {
      add_doubles(of_experts + item * 2 * E, E, counts);
      add_doubles(of_experts + item * 2 * E + E, E, scores);
    }
  }
  // 3. sums of all rows
  double lse_squares = 0, entropy = 0;
  for (int64_t item = 0; item < sequences * blocks; ++item) {
    lse_squares += of_all[2 * item];
    entropy += of_all[2 * item + 1];
  }
  if (a.lse_squares) *row_of<double>(a.lse_squares, 0) += lse_squares;
  if (a.entropy) *row_of<double>(a.entropy, 0) += entropy;
  for (int64_t s = 0; s < sequences && a.all_counts; ++s)
    add_doubles(row_of<double>(a.counts, s), E, row_of<double>(a.all_counts, 0));
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu {
namespace {

int64_t scratch_bytes(const ConstView& logits, const Threads& threads) {
  return threads.size() * RouterScratch::bytes(logits.cols, logits.dtype);
}

template <typename A>
void write_balance(const BalanceLoss& a, int64_t row, double unit) {
  if (!a.balance) return;
  const double* counts = row_of<double>(a.counts, row);
  A* out = row_of<A>(a.balance, row);
  for (int64_t e = 0; e < a.counts.cols; ++e) out[e] = static_cast<A>(unit * counts[e]);
}

}  // namespace

void CpuBackend::launch(const RouteForward& args, Stream&) {
  const ScopedBlock scratch(workspace(), scratch_bytes(args.logits, threads_));
  ASHLAR_FOR_ISA(info_.isa, route_forward_impl)(args, threads_, scratch.as<std::byte>());
}

void CpuBackend::launch(const RouteBackward& args, Stream&) {
  const bool sums = args.dexpert_scale && args.scale_mode != GradMode::kSkip;
  const ScopedBlock scratch(workspace(), scratch_bytes(args.logits, threads_));
  const ScopedBlock partials(
      workspace(), sums ? router_blocks(args.logits.rows) * args.logits.cols * size_of(args.logits.dtype) : 0);
  ASHLAR_FOR_ISA(info_.isa, route_backward_impl)
  (args, threads_, scratch.as<std::byte>(), sums ? partials.data() : nullptr);
}

void CpuBackend::launch(const RouterStatistics& args, Stream&) {
  const ScopedBlock scratch(workspace(), scratch_bytes(args.logits, threads_));
  const ScopedBlock partials(workspace(), router_partials(args) * static_cast<int64_t>(sizeof(double)));
  ASHLAR_FOR_ISA(info_.isa, router_statistics_impl)(args, threads_, scratch.as<std::byte>(), partials.as<double>());
}

void CpuBackend::launch(const BalanceLoss& args, Stream&) {
  const int64_t E = args.counts.cols;
  const double factor = inv_tokens(args.scalars) * args.factor * static_cast<double>(E);
  double sum = 0;  // of f * scores
  for (int64_t s = 0; s < args.counts.rows; ++s) {
    const double* counts = row_of<double>(args.counts, s);
    const double total = std::accumulate(counts, counts + E, 0.0);
    const double share = total == 0 ? 0 : 1 / total;  // f is share * counts
    // 1. balance
    if (args.balance.dtype == DType::kFloat64) {
      write_balance<double>(args, s, factor * share);
    } else {
      write_balance<float>(args, s, factor * share);
    }
    // 2. the loss, of all sequences if counts has one row
    for (int64_t r = s; r < (args.counts.rows == 1 ? args.scores.rows : s + 1); ++r) {
      sum += share * std::inner_product(counts, counts + E, row_of<double>(args.scores, r), 0.0);
    }
  }
  *static_cast<double*>(args.loss.data) += static_cast<double>(E) * args.loss_factor * sum;
}

}  // namespace ashlar::cpu
#endif  // HWY_ONCE
