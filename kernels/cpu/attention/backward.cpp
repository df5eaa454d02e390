// Attention backward. Scores and probabilities are recomputed from q, k and lse, block by block, without a T x T matrix
// in memory. With P the probabilities, M the dropout factors and delta[i] = sum_d out dout:
//   dv = (P M)^T dout      dS = P (M dout v^T - delta)      dq = scale dS k      dk = scale dS^T q
// The gradient of an entry of T5's table is the sum of dS over the (query, key) pairs with its head and bucket. Within
// a block of scores, dS is summed by distance i - j of query i and key j; these sums are added by bucket, in double,
// over all keys of a block of queries, and then over the blocks of queries. Flops: 10 D per visible (query, key) pair,
// 14 D if dq has separate items. Bound by multiply-adds. An item of work computes dq, dk and dv of one KV head and all
// its queries (dk and dv are summed in scratch memory), or only dk and dv of a range of keys, or only dq of a block of
// queries. For every kind, each sum is one chain of additions over query heads, queries and keys in ascending order.

#include <cstdint>
#include <numbers>

#include "kernels/cpu/attention/items.h"
#include "kernels/cpu/dispatch.h"

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/backward.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention/dropout_inl.h"
#include "kernels/cpu/attention/softmax_inl.h"
#include "kernels/cpu/attention/tile_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::attention {
namespace HWY_NAMESPACE {

/// Scratch memory of one item. Dp and Vp are D and D_v rounded up to whole vectors.
template <typename T>
struct BackwardScratch {
  Bounds<T>* bounds;
  T* lse;        // [64] lse / ln 2
  T* delta;      // [64]
  T* q;          // [64][Dp] scale * q / ln 2
  T* dout;       // [64][Vp]
  T* qt;         // [D][64] q transposed
  T* doutt;      // [D_v][64]
  T* dq;         // [64][Dp]
  T* p;          // [64 keys][64 queries] scores, then probabilities with dropout
  T* ds;         // [64 keys][64 queries] dout v^T, then dS
  T* factors;    // [64 keys][64 queries] dropout factors
  T* softcap;    // [64 keys][64 queries] derivative of the soft cap
  T* biases;     // [kDistances] T5's biases of one block of scores
  T* diagonals;  // [kDistances] sums of dS by distance, of one block
  T* k;          // [keys][Dp] each block is packed when it is first needed
  T* v;          // [keys][Vp]
  T* dk;         // [keys][Dp]
  T* dv;         // [keys][Vp]
  bool* packed;  // [keys/64] true if the block of keys is packed

  BackwardScratch(ScratchLayout& layout, const AttentionShape& shape, int64_t keys) {
    const int64_t Dp = padded_width<T>(shape.D), Vp = padded_width<T>(shape.v_dim());
    const int64_t blocks = (keys + kBlock - 1) / kBlock;
    bounds = layout.allocate<Bounds<T>>(1);
    lse = layout.allocate<T>(kBlock);
    delta = layout.allocate<T>(kBlock);
    q = layout.allocate<T>(kBlock * Dp);
    dout = layout.allocate<T>(kBlock * Vp);
    qt = layout.allocate<T>(transposed_rows<T>(shape.D) * kBlock);
    doutt = layout.allocate<T>(transposed_rows<T>(shape.v_dim()) * kBlock);
    dq = layout.allocate<T>(kBlock * Dp);
    p = layout.allocate<T>(kBlock * kBlock);
    ds = layout.allocate<T>(kBlock * kBlock);
    factors = layout.allocate<T>(kBlock * kBlock);
    softcap = layout.allocate<T>(shape.scores.softcap != 0 ? kBlock * kBlock : 0);
    biases = layout.allocate<T>(shape.scores.t5_bias ? kDistances : 0);
    diagonals = layout.allocate<T>(shape.scores.t5_bias ? kDistances : 0);
    k = layout.allocate<T>(blocks * kBlock * Dp);
    v = layout.allocate<T>(blocks * kBlock * Vp);
    dk = layout.allocate<T>(blocks * kBlock * Dp);
    dv = layout.allocate<T>(blocks * kBlock * Vp);
    packed = layout.allocate<bool>(blocks);
  }
};

/// sums[key][d] += sum over queries of weights[key][query] rows[query][d].
template <typename T>
HWY_INLINE void gather_over_queries(const Bounds<T>& bounds, const T* weights, const T* rows, int64_t Dp,
                                    int64_t key_begin, int64_t keys, T* sums) {
  for (int64_t j = 0; j < keys; j += kTileRows) {
    const int64_t first = HWY_MAX(key_begin + j - bounds.causal_diagonal, int64_t{0});
    product<T>({.a = weights + j * kBlock + first,
                .a_row = kBlock,
                .a_k = 1,
                .b = rows + first * Dp,
                .b_row = Dp,
                .c = sums + j * Dp,
                .c_row = Dp,
                .rows = HWY_MIN(keys - j, int64_t{kTileRows}),
                .vectors = Dp / kLanes<T>,
                .k = bounds.num_queries - first});
  }
}

/// Processes one vector of queries and one block of keys. Before the call scratch.p has scores and scratch.ds has
/// dout v^T; after it they have P M and dS.
template <typename T, bool kMasked, bool kDropout>
HWY_INLINE void block_score_gradients(const BackwardScratch<T>& scratch, int64_t v, int64_t key_begin, int64_t keys) {
  const Tag<T> d;
  const Bounds<T>& bounds = *scratch.bounds;
  const auto lse = hn::Load(d, scratch.lse + v * kLanes<T>);
  const auto delta = hn::Load(d, scratch.delta + v * kLanes<T>);
  for (int64_t j = 0; j < keys; ++j) {
    T* HWY_RESTRICT p = scratch.p + j * kBlock + v * kLanes<T>;
    T* HWY_RESTRICT ds = scratch.ds + j * kBlock + v * kLanes<T>;
    auto probability = exp2_of(d, hn::Sub(hn::Load(d, p), lse));
    auto gradient = hn::Load(d, ds);
    if constexpr (kMasked) {
      const auto mask = seen(bounds, v, key_begin + j);
      probability = hn::IfThenElseZero(mask, probability);
      gradient = hn::IfThenElseZero(mask, gradient);
    }
    if constexpr (kDropout) {
      const auto factor = hn::Load(d, scratch.factors + j * kBlock + v * kLanes<T>);
      hn::Store(hn::Mul(probability, factor), d, p);
      hn::Store(hn::Mul(probability, hn::MulSub(factor, gradient, delta)), d, ds);
    } else {
      hn::Store(probability, d, p);
      hn::Store(hn::Mul(probability, hn::Sub(gradient, delta)), d, ds);
    }
  }
}

/// Adds dS of one vector of queries to the sums by distance. Lanes beyond the last query are undefined and are left
/// out.
template <typename T>
HWY_NOINLINE void add_diagonals(const BackwardScratch<T>& scratch, int64_t v, int64_t keys) {
  const Tag<T> d;
  const auto queries =
      hn::FirstN(d, static_cast<size_t>(HWY_MIN(scratch.bounds->num_queries - v * kLanes<T>, kLanes<T>)));
  for (int64_t j = 0; j < keys; ++j) {
    T* HWY_RESTRICT to = scratch.diagonals + v * kLanes<T> - j + kBlock - 1;
    const auto ds = hn::IfThenElseZero(queries, hn::Load(d, scratch.ds + j * kBlock + v * kLanes<T>));
    hn::StoreU(hn::Add(hn::LoadU(d, to), ds), d, to);
  }
}

/// Converts the scores of one block of keys and one block of queries to probabilities and gradients of scores. Adds
/// these gradients to `bias_sums` [buckets], if given.
template <typename T>
HWY_INLINE void block_gradients(const AttentionShape& shape, const Item& item, int64_t h, int64_t t, int64_t key_begin,
                                int64_t keys, const BackwardScratch<T>& scratch, double* bias_sums) {
  const Tag<T> d;
  const Bounds<T>& bounds = *scratch.bounds;
  const bool dropout = shape.dropout.active();
  const HeadScores<T> change = head_scores<T>(shape, h, bounds, key_begin, scratch.biases);
  if (bias_sums != nullptr) clear(scratch.diagonals, kDistances);
  for (int64_t v = 0; v < bounds.num_vectors; ++v) {
    const int64_t vector_keys = HWY_MAX(HWY_MIN(keys, bounds.max_hi[v] + 1 - key_begin), int64_t{0});
    const bool masked = key_begin < bounds.open_begin[v] || key_begin + vector_keys > bounds.open_end[v];
    if (dropout) {
      const DropoutBlock block{.b = item.b,
                               .h = h,
                               .t_begin = t + v * kLanes<T>,
                               .num_queries = HWY_MIN(bounds.num_queries - v * kLanes<T>, kLanes<T>),
                               .key_begin = key_begin,
                               .num_keys = vector_keys};
      dropout_factors(shape, block, scratch.factors + v * kLanes<T>);
    }
    if (change.active()) change_scores<T>(change, bounds, v, key_begin, vector_keys, scratch.p, scratch.softcap);
    if (masked && dropout) {
      block_score_gradients<T, true, true>(scratch, v, key_begin, vector_keys);
    } else if (masked) {
      block_score_gradients<T, true, false>(scratch, v, key_begin, vector_keys);
    } else if (dropout) {
      block_score_gradients<T, false, true>(scratch, v, key_begin, vector_keys);
    } else {
      block_score_gradients<T, false, false>(scratch, v, key_begin, vector_keys);
    }
    if (bias_sums != nullptr) add_diagonals(scratch, v, vector_keys);
    for (int64_t j = 0; change.softcap != 0 && j < vector_keys; ++j) {
      T* HWY_RESTRICT ds = scratch.ds + j * kBlock + v * kLanes<T>;
      hn::Store(hn::Mul(hn::Load(d, ds), hn::Load(d, scratch.softcap + j * kBlock + v * kLanes<T>)), d, ds);
    }
    for (int64_t j = vector_keys; j < keys; ++j) {
      hn::Store(hn::Zero(d), d, scratch.p + j * kBlock + v * kLanes<T>);
      hn::Store(hn::Zero(d), d, scratch.ds + j * kBlock + v * kLanes<T>);
    }
  }
  if (bias_sums == nullptr) return;
  each_bucket(shape, bounds.diagonal - key_begin,
              [&](int64_t x, int32_t bucket) { bias_sums[bucket] += static_cast<double>(scratch.diagonals[x]); });
}

/// Packs the data of a block of queries: bounds, q and dout (each also transposed), lse and delta.
template <typename S, typename T>
HWY_INLINE void pack_queries(const AttentionBackward& args, const Item& item, int64_t h, int64_t t, int64_t t_end,
                             const BackwardScratch<T>& scratch) {
  const AttentionShape& shape = args.shape;
  const int64_t D = shape.D, Dp = padded_width<T>(D), D_v = shape.v_dim(), Vp = padded_width<T>(D_v);
  Bounds<T>& bounds = *scratch.bounds;
  find_bounds(shape, item.b, t, t_end, bounds);
  const int64_t stat = (item.b * shape.H + h) * shape.T_q + t;
  const S* q = static_cast<const S*>(args.q.data) + item.b * shape.q_batch_stride + h * D;
  for (int64_t i = 0; i < kBlock; ++i) {
    scratch.lse[i] = 0;
    scratch.delta[i] = 0;
  }
  for (int64_t i = 0; i < bounds.num_queries; ++i) {
    const int64_t row = item.b * shape.T_q + t + i;
    const S* dout = static_cast<const S*>(args.dout.data) + row * args.dout.stride + h * D_v;
    pack_row(q + (t + i) * args.q.stride, D, static_cast<T>(shape.scores.scale * std::numbers::log2e),
             scratch.q + i * Dp, Dp);
    pack_row(dout, D_v, T{1}, scratch.dout + i * Vp, Vp);
    scratch.lse[i] = static_cast<const T*>(args.lse.data)[stat + i] * std::numbers::log2e_v<T>;
    scratch.delta[i] =
        args.delta ? static_cast<const T*>(args.delta.data)[stat + i]
                   : dot_row(static_cast<const S*>(args.out.data) + row * args.out.stride + h * D_v, dout, D_v, T{});
  }
  const int64_t padded = bounds.num_vectors * kLanes<T>;
  clear(scratch.q + bounds.num_queries * Dp, (padded - bounds.num_queries) * Dp);
  clear(scratch.dout + bounds.num_queries * Vp, (padded - bounds.num_queries) * Vp);
  pack_transposed(scratch.q, Dp, padded, transposed_rows<T>(D), scratch.qt, kBlock);
  pack_transposed(scratch.dout, Vp, padded, transposed_rows<T>(D_v), scratch.doutt, kBlock);
}

/// A range of queries, in whole blocks.
struct Queries {
  int64_t begin, end;
};
/// Returns the queries of an item whose positions allow them to see one of its keys.
HWY_INLINE Queries queries_of(const AttentionShape& s, const Item& item) {
  const int64_t first = s.mask.first_query(s.mask.kv_start + item.key_begin) - s.mask.q_start;
  const int64_t last = s.mask.last_query(s.mask.kv_start + item.key_end - 1) - s.mask.q_start;
  const int64_t begin = HWY_MAX(first - item.t_begin, int64_t{0}) / kBlock * kBlock + item.t_begin;
  return {HWY_MIN(begin, item.t_end), HWY_MIN(HWY_MAX(last + 1, item.t_begin), item.t_end)};
}

template <typename S, typename T>
void backward_typed(const AttentionBackward& args, const Item& item, std::byte* base) {
  const AttentionShape& shape = args.shape;
  const int64_t D = shape.D, Dp = padded_width<T>(D), D_v = shape.v_dim(), Vp = padded_width<T>(D_v);
  const int64_t g = item.h_begin * shape.G / shape.H;
  const bool accumulate = args.mode == GradMode::kAccumulate;
  const int64_t all_keys = item.key_end - item.key_begin;
  const int64_t k_offset = item.b * shape.kv_batch_stride + g * D;
  const int64_t v_offset = item.b * shape.v_stride() + g * D_v;
  ScratchLayout layout(base);
  const BackwardScratch<T> scratch(layout, shape, all_keys);
  const Bounds<T>& bounds = *scratch.bounds;

  if (item.want_dkv) {
    clear(scratch.dk, all_keys * Dp);
    clear(scratch.dv, all_keys * Vp);
  }
  for (int64_t block = 0; block * kBlock < all_keys; ++block) scratch.packed[block] = false;

  // If another item computes dq, queries that see none of the keys are skipped.
  const bool all_queries = item.want_dq || item.bias_sums != nullptr;
  const Queries queries = all_queries ? Queries{item.t_begin, item.t_end} : queries_of(shape, item);
  for (int64_t h = item.h_begin; h < item.h_end; ++h) {
    for (int64_t t = queries.begin; t < queries.end; t += kBlock) {
      pack_queries<S, T>(args, item, h, t, HWY_MIN(t + kBlock, queries.end), scratch);
      if (item.want_dq) clear(scratch.dq, bounds.num_queries * Dp);
      double* const bias_sums = item.bias_sums_of(shape, h, t);
      for (int64_t i = 0; bias_sums != nullptr && i < shape.scores.t5_bias.rows; ++i) bias_sums[i] = 0;

      const int64_t key_first = HWY_MAX(item.key_begin, bounds.key_begin / kBlock * kBlock);
      const int64_t key_last = HWY_MIN(item.key_end, bounds.key_end);
      for (int64_t key = key_first; key < key_last; key += kBlock) {
        const int64_t keys = HWY_MIN(key_last - key, kBlock);
        const int64_t local = key - item.key_begin;
        T* k = scratch.k + local * Dp;
        T* v = scratch.v + local * Vp;
        if (!scratch.packed[local / kBlock]) {
          scratch.packed[local / kBlock] = true;
          for (int64_t j = 0; j < HWY_MIN(item.key_end - key, kBlock); ++j) {
            pack_row(static_cast<const S*>(args.k.data) + k_offset + (key + j) * args.k.stride, D, T{1}, k + j * Dp,
                     Dp);
            pack_row(static_cast<const S*>(args.v.data) + v_offset + (key + j) * args.v.stride, D_v, T{1}, v + j * Vp,
                     Vp);
          }
        }
        // 1. scores and dout v^T, 2. probabilities and the gradients of the scores
        block_products(bounds, k, D, Dp, scratch.qt, key, keys, scratch.p);
        block_products(bounds, v, D_v, Vp, scratch.doutt, key, keys, scratch.ds);
        block_gradients(shape, item, h, t, key, keys, scratch, bias_sums);
        // 3. dv and dk
        if (item.want_dkv) {
          gather_over_queries(bounds, scratch.p, scratch.dout, Vp, key, keys, scratch.dv + local * Vp);
          gather_over_queries(bounds, scratch.ds, scratch.q, Dp, key, keys, scratch.dk + local * Dp);
        }
        // 4. dq
        if (item.want_dq) gather_over_keys<T>(bounds, scratch.ds, k, Dp, key, keys, nullptr, scratch.dq);
      }
      for (int64_t i = 0; item.want_dq && i < bounds.num_queries; ++i) {
        unpack_row(scratch.dq + i * Dp, D, static_cast<T>(shape.scores.scale), accumulate,
                   static_cast<S*>(args.dq.data) + item.b * shape.q_batch_stride + (t + i) * args.dq.stride + h * D);
      }
    }
  }
  // 5. dk, times ln 2 since the packed q was divided by ln 2, and dv
  for (int64_t j = 0; item.want_dkv && j < all_keys; ++j) {
    const int64_t row = item.key_begin + j;
    unpack_row(scratch.dk + j * Dp, D, std::numbers::ln2_v<T>, accumulate,
               static_cast<S*>(args.dk.data) + k_offset + row * args.dk.stride);
    unpack_row(scratch.dv + j * Vp, D_v, T{1}, accumulate,
               static_cast<S*>(args.dv.data) + v_offset + row * args.dv.stride);
  }
}

ItemKernels<AttentionBackward> backward_items() {
  return item_kernels<AttentionBackward, BackwardScratch>(
      [](auto s, auto t, const AttentionBackward& args, const Item& item, std::byte* scratch) {
        backward_typed<decltype(s), decltype(t)>(args, item, scratch);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu::attention
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ashlar::cpu::attention {
ItemKernels<AttentionBackward> backward_kernels(Isa isa) { return ASHLAR_FOR_ISA(isa, backward_items)(); }
}  // namespace ashlar::cpu::attention
#endif
