// Attention forward: scores, online softmax and the weighted sum of values in one sweep over key blocks, without a T x
// T matrix in memory. Flops: 4 D per visible (query, key) pair. Memory traffic: q, k, v and out once, and k and v again
// from cache for every span of queries. Bound by multiply-adds, then by exp2. Scores are stored transposed,
// [key][query], so that softmax works on whole vectors of queries, and values need no transposition. An item of work is
// (sample b, query head, span of queries); a free thread takes the next item.

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/cpu/attention/items.h"
#include "kernels/cpu/dispatch.h"

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/forward.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention/dropout_inl.h"
#include "kernels/cpu/attention/softmax_inl.h"
#include "kernels/cpu/attention/tile_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::attention {
namespace HWY_NAMESPACE {

/// State of one block of queries, updated for each key block.
template <typename T>
struct ForwardPanel {
  Bounds<T> bounds;
  alignas(64) T row_max[kBlock];  // maximum of the scores so far; scores are divided by ln 2
  alignas(64) T row_sum[kBlock];  // sum of 2^(score - row_max)
  alignas(64) T rescale[kBlock];  // factor by which the sums of earlier key blocks must be multiplied
};

/// Scratch memory of one item. Dp and Vp are D and D_v rounded up to whole vectors.
template <typename T>
struct ForwardScratch {
  ForwardPanel<T>* panels;  // [queries/64]
  T* qt;                    // [queries/64][D][64] q * scale / ln 2, transposed
  T* q;                     // [64][Dp] q * scale / ln 2 of one block
  T* out;                   // [queries][Vp]
  T* k;                     // [64][Dp] one block of keys
  T* v;                     // [64][Vp]
  T* scores;                // [64 keys][64 queries], then probabilities
  T* factors;               // [64 keys][64 queries] dropout factors
  T* biases;                // [kDistances] T5's biases of one block of scores

  ForwardScratch(ScratchLayout& layout, const AttentionShape& shape, int64_t queries) {
    const int64_t Dp = padded_width<T>(shape.D), Vp = padded_width<T>(shape.v_dim());
    const int64_t panel_count = (queries + kBlock - 1) / kBlock;
    panels = layout.allocate<ForwardPanel<T>>(panel_count);
    qt = layout.allocate<T>(panel_count * transposed_rows<T>(shape.D) * kBlock);
    q = layout.allocate<T>(kBlock * Dp);
    out = layout.allocate<T>(panel_count * kBlock * Vp);
    k = layout.allocate<T>(kBlock * Dp);
    v = layout.allocate<T>(kBlock * Vp);
    scores = layout.allocate<T>(kBlock * kBlock);
    factors = layout.allocate<T>(kBlock * kBlock);
    biases = layout.allocate<T>(shape.scores.t5_bias ? kDistances : 0);
  }
};

/// Online softmax of one vector of queries over one block of keys: scores become 2^(score - row_max), 0 where masked.
template <typename T, bool kMasked, bool kDropout>
HWY_INLINE void block_softmax(ForwardPanel<T>& panel, int64_t v, int64_t key_begin, int64_t keys,
                              T* HWY_RESTRICT scores, const T* HWY_RESTRICT factors) {
  const Tag<T> d;
  constexpr int64_t N = kLanes<T>;
  T* HWY_RESTRICT s = scores + v * N;
  const auto old_max = hn::Load(d, panel.row_max + v * N);
  auto row_max = old_max;
  for (int64_t j = 0; j < keys; ++j) {
    auto x = hn::Load(d, s + j * kBlock);
    if constexpr (kMasked) x = hn::IfThenElse(seen(panel.bounds, v, key_begin + j), x, old_max);
    row_max = hn::Max(row_max, x);
  }
  const auto rescale = exp2_of(d, hn::Sub(old_max, row_max));
  auto row_sum = hn::Mul(rescale, hn::Load(d, panel.row_sum + v * N));
  for (int64_t j = 0; j < keys; ++j) {
    auto p = exp2_of(d, hn::Sub(hn::Load(d, s + j * kBlock), row_max));
    if constexpr (kMasked) p = hn::IfThenElseZero(seen(panel.bounds, v, key_begin + j), p);
    row_sum = hn::Add(row_sum, p);
    if constexpr (kDropout) p = hn::Mul(p, hn::Load(d, factors + j * kBlock + v * N));
    hn::Store(p, d, s + j * kBlock);
  }
  hn::Store(row_max, d, panel.row_max + v * N);
  hn::Store(row_sum, d, panel.row_sum + v * N);
  hn::Store(rescale, d, panel.rescale + v * N);
}

/// Processes one block of keys and one block of queries.
template <typename T>
HWY_NOINLINE void forward_block(const AttentionShape& shape, const Item& item, int64_t panel_index, int64_t key_begin,
                                const ForwardScratch<T>& scratch) {
  const Tag<T> d;
  const int64_t D = shape.D, Dp = padded_width<T>(D), Vp = padded_width<T>(shape.v_dim());
  ForwardPanel<T>& panel = scratch.panels[panel_index];
  const Bounds<T>& bounds = panel.bounds;
  const int64_t keys = HWY_MIN(bounds.key_end - key_begin, kBlock);

  // 1. scores
  block_products(bounds, scratch.k, D, Dp, scratch.qt + panel_index * transposed_rows<T>(D) * kBlock, key_begin, keys,
                 scratch.scores);

  // 2. probabilities
  const bool dropout = shape.dropout.active();
  const HeadScores<T> change = head_scores<T>(shape, item.h_begin, bounds, key_begin, scratch.biases);
  for (int64_t v = 0; v < bounds.num_vectors; ++v) {
    const int64_t vector_keys = HWY_MAX(HWY_MIN(keys, bounds.max_hi[v] + 1 - key_begin), int64_t{0});
    const bool masked = key_begin < bounds.open_begin[v] || key_begin + vector_keys > bounds.open_end[v];
    if (dropout) {
      const DropoutBlock block{.b = item.b,
                               .h = item.h_begin,
                               .t_begin = item.t_begin + panel_index * kBlock + v * kLanes<T>,
                               .num_queries = HWY_MIN(bounds.num_queries - v * kLanes<T>, kLanes<T>),
                               .key_begin = key_begin,
                               .num_keys = vector_keys};
      dropout_factors(shape, block, scratch.factors + v * kLanes<T>);
    }
    if (change.active()) change_scores<T>(change, bounds, v, key_begin, vector_keys, scratch.scores, nullptr);
    if (masked && dropout) {
      block_softmax<T, true, true>(panel, v, key_begin, vector_keys, scratch.scores, scratch.factors);
    } else if (masked) {
      block_softmax<T, true, false>(panel, v, key_begin, vector_keys, scratch.scores, scratch.factors);
    } else if (dropout) {
      block_softmax<T, false, true>(panel, v, key_begin, vector_keys, scratch.scores, scratch.factors);
    } else {
      block_softmax<T, false, false>(panel, v, key_begin, vector_keys, scratch.scores, scratch.factors);
    }
    for (int64_t j = vector_keys; j < keys; ++j) {
      hn::Store(hn::Zero(d), d, scratch.scores + j * kBlock + v * kLanes<T>);
    }
  }

  // 3. out = rescale * out + probabilities * values
  gather_over_keys(bounds, scratch.scores, scratch.v, Vp, key_begin, keys, panel.rescale,
                   scratch.out + panel_index * kBlock * Vp);
}

template <typename S, typename T>
void forward_typed(const AttentionForward& args, const Item& item, std::byte* base) {
  const AttentionShape& shape = args.shape;
  const int64_t D = shape.D, Dp = padded_width<T>(D), D_v = shape.v_dim(), Vp = padded_width<T>(D_v);
  const int64_t h = item.h_begin, g = h * shape.G / shape.H;
  const int64_t panel_count = (item.t_end - item.t_begin + kBlock - 1) / kBlock;
  ScratchLayout layout(base);
  const ForwardScratch<T> scratch(layout, shape, item.t_end - item.t_begin);

  // 0. the queries: the bounds of their keys, and transposed q * scale / ln 2 (with 1 / ln 2, softmax can use exp2)
  const S* q = static_cast<const S*>(args.q.data) + item.b * shape.q_batch_stride + h * D;
  const bool sinks = static_cast<bool>(shape.scores.sinks);
  const T sink = sinks ? static_cast<T>(static_cast<const S*>(shape.scores.sinks.data)[h]) : T{0};
  int64_t key_begin = shape.T_kv, key_end = 0;
  for (int64_t p = 0; p < panel_count; ++p) {
    ForwardPanel<T>& panel = scratch.panels[p];
    const int64_t t = item.t_begin + p * kBlock;
    find_bounds(shape, item.b, t, HWY_MIN(t + kBlock, item.t_end), panel.bounds);
    if (panel.bounds.key_begin < panel.bounds.key_end) {
      key_begin = HWY_MIN(key_begin, panel.bounds.key_begin);
      key_end = HWY_MAX(key_end, panel.bounds.key_end);
    }
    for (int64_t i = 0; i < panel.bounds.num_queries; ++i) {
      pack_row(q + (t + i) * args.q.stride, D, static_cast<T>(shape.scores.scale * std::numbers::log2e),
               scratch.q + i * Dp, Dp);
    }
    const int64_t padded = panel.bounds.num_vectors * kLanes<T>;
    clear(scratch.q + panel.bounds.num_queries * Dp, (padded - panel.bounds.num_queries) * Dp);
    pack_transposed(scratch.q, Dp, padded, transposed_rows<T>(D), scratch.qt + p * transposed_rows<T>(D) * kBlock,
                    kBlock);
    clear(scratch.out + p * kBlock * Vp, panel.bounds.num_queries * Vp);
    for (int64_t i = 0; i < kBlock; ++i) {  // a sink acts like one more key with a zero value vector
      panel.row_max[i] = sinks ? sink * std::numbers::log2e_v<T> : std::numeric_limits<T>::lowest();
      panel.row_sum[i] = sinks ? T{1} : T{0};
    }
  }

  const S* k = static_cast<const S*>(args.k.data) + item.b * shape.kv_batch_stride + g * D;
  const S* v = static_cast<const S*>(args.v.data) + item.b * shape.v_stride() + g * D_v;
  for (int64_t block = key_begin / kBlock * kBlock; block < key_end; block += kBlock) {
    for (int64_t j = block; j < HWY_MIN(block + kBlock, key_end); ++j) {
      pack_row(k + j * args.k.stride, D, T{1}, scratch.k + (j - block) * Dp, Dp);
      pack_row(v + j * args.v.stride, D_v, T{1}, scratch.v + (j - block) * Vp, Vp);
    }
    for (int64_t p = 0; p < panel_count; ++p) {
      const Bounds<T>& bounds = scratch.panels[p].bounds;
      if (bounds.key_begin < block + kBlock && block < bounds.key_end) forward_block(shape, item, p, block, scratch);
    }
  }

  // 4. out / row_sum and lse; a row that sees no key gets out = 0 and lse = sink (-inf if there are no sinks)
  S* result = static_cast<S*>(args.out.data);
  T* lse = static_cast<T*>(args.lse.data) + (item.b * shape.H + h) * shape.T_q;
  for (int64_t t = item.t_begin; t < item.t_end; ++t) {
    const ForwardPanel<T>& panel = scratch.panels[(t - item.t_begin) / kBlock];
    const int64_t i = (t - item.t_begin) % kBlock;
    const bool empty = panel.bounds.lo[i] > panel.bounds.hi[i];
    const T sum = panel.row_sum[i];
    const T of_none = sinks ? sink : -std::numeric_limits<T>::infinity();
    lse[t] = empty ? of_none : panel.row_max[i] * std::numbers::ln2_v<T> + std::log(sum);
    unpack_row(scratch.out + (t - item.t_begin) * Vp, D_v, empty ? T{0} : T{1} / sum, false,
               result + (item.b * shape.T_q + t) * args.out.stride + h * D_v);
  }
}

ItemKernels<AttentionForward> forward_items() {
  return item_kernels<AttentionForward, ForwardScratch>(
      [](auto s, auto t, const AttentionForward& args, const Item& item, std::byte* scratch) {
        forward_typed<decltype(s), decltype(t)>(args, item, scratch);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu::attention {
ItemKernels<AttentionForward> forward_kernels(Isa isa) { return ASHLAR_FOR_ISA(isa, forward_items)(); }
}  // namespace ashlar::cpu::attention
#endif
