// Operations on a block of scores: bounds of the mask, products of blocks, exp2, changes of scores. Compiled once
// per instruction set.

#if defined(ASHLAR_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
#undef ASHLAR_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
#else
#define ASHLAR_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
#endif

#include <cstdint>
#include <numbers>

#include "core/backend/attention.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/attention/items.h"
#include "kernels/cpu/attention/tile_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::attention {
namespace HWY_NAMESPACE {

inline constexpr int64_t kBlock = kBlockSize;

/// Returns 2^x. An x below the smallest normal exponent is replaced by this exponent; NaN stays NaN. Let f be
/// the difference of x and the nearest integer, so |f| <= 1/2. 2^f is computed as 1 + f q(f), where the polynomial q
/// interpolates at Chebyshev points. The relative error before rounding is 5e-9 (fp32) or 1.2e-19 (fp64). 2^0 is
/// exactly 1.
HWY_INLINE hn::Vec<Tag<float>> exp2_of(Tag<float> d, hn::Vec<Tag<float>> x) {
  const hn::RebindToSigned<Tag<float>> di;
  x = hn::Max(hn::Set(d, -126.0F), x);  // Max returns the second operand if one is NaN
  const auto magic = hn::Set(d, 0x1.8p23F);
  const auto shifted = hn::Add(x, magic);  // has the integer nearest to x in its low bits
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  auto q = hn::Set(d, 1.54531629e-04F);
  q = hn::MulAdd(q, f, hn::Set(d, 1.33908634e-03F));
  q = hn::MulAdd(q, f, hn::Set(d, 9.61808256e-03F));
  q = hn::MulAdd(q, f, hn::Set(d, 5.55035711e-02F));
  q = hn::MulAdd(q, f, hn::Set(d, 2.40226508e-01F));
  q = hn::MulAdd(q, f, hn::Set(d, 6.93147188e-01F));
  q = hn::MulAdd(q, f, hn::Set(d, 1.0F));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, q), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

HWY_INLINE hn::Vec<Tag<double>> exp2_of(Tag<double> d, hn::Vec<Tag<double>> x) {
  const hn::RebindToSigned<Tag<double>> di;
  x = hn::Max(hn::Set(d, -1022.0), x);
  const auto magic = hn::Set(d, 0x1.8p52);
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));
  auto q = hn::Set(d, 2.57293241773623046966e-11);
  q = hn::MulAdd(q, f, hn::Set(d, 4.45581790833606449045e-10));
  q = hn::MulAdd(q, f, hn::Set(d, 7.05489730415549946354e-09));
  q = hn::MulAdd(q, f, hn::Set(d, 1.01780570877339407473e-07));
  q = hn::MulAdd(q, f, hn::Set(d, 1.32154868087055627103e-06));
  q = hn::MulAdd(q, f, hn::Set(d, 1.52527338415567733184e-05));
  q = hn::MulAdd(q, f, hn::Set(d, 1.54035303933707342283e-04));
  q = hn::MulAdd(q, f, hn::Set(d, 1.33335581464064708429e-03));
  q = hn::MulAdd(q, f, hn::Set(d, 9.61812910762848034818e-03));
  q = hn::MulAdd(q, f, hn::Set(d, 5.55041086648216247523e-02));
  q = hn::MulAdd(q, f, hn::Set(d, 2.40226506959100721827e-01));
  q = hn::MulAdd(q, f, hn::Set(d, 6.93147180559945286227e-01));
  q = hn::MulAdd(q, f, hn::Set(d, 1.0));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, q), hn::ShiftLeft<52>(hn::BitCast(di, shifted))));
}

/// Key ranges of the queries of one block: row i sees key j (counted from kv_start) iff lo[i] <= j <= hi[i]. Neither
/// bound decreases from one query to the next.
template <typename T>
struct Bounds {
  using Int = hwy::MakeSigned<T>;
  static constexpr int64_t kMaxVectors = kBlock / kLanes<T>;

  alignas(64) Int lo[kBlock];
  alignas(64) Int hi[kBlock];  // -1 in the rows that only fill the last vector
  int64_t num_queries;
  int64_t num_vectors;
  int64_t diagonal;                 // position of row 0 minus position of key 0
  int64_t causal_diagonal;          // row i sees no key after causal_diagonal + i
  int64_t key_begin, key_end;       // keys that at least one row sees; empty if none does
  int64_t max_hi[kMaxVectors];      // the largest hi of each vector of rows
  int64_t open_begin[kMaxVectors];  // keys of [open_begin, open_end) are seen by every row of the vector
  int64_t open_end[kMaxVectors];
};

template <typename T>
HWY_INLINE void find_bounds(const AttentionShape& s, int64_t b, int64_t t_begin, int64_t t_end, Bounds<T>& bounds) {
  using Int = typename Bounds<T>::Int;
  constexpr int64_t N = kLanes<T>;
  bounds.num_queries = t_end - t_begin;
  bounds.num_vectors = (bounds.num_queries + N - 1) / N;
  bounds.diagonal = s.mask.q_start + t_begin - s.mask.kv_start;
  bounds.causal_diagonal = s.mask.causal ? bounds.diagonal : s.T_kv;
  bounds.key_begin = s.T_kv;
  bounds.key_end = 0;
  for (int64_t v = 0; v < bounds.num_vectors; ++v) {
    bounds.max_hi[v] = -1;
    bounds.open_begin[v] = 0;
    bounds.open_end[v] = s.T_kv;
    for (int64_t i = v * N; i < (v + 1) * N; ++i) {
      int64_t lo = 0, hi = -1;
      if (i < bounds.num_queries) {
        const int64_t position = s.mask.q_start + t_begin + i, row = b * s.T_q + t_begin + i;
        lo = s.mask.first_key(position);
        hi = s.mask.last_key(position);
        if (s.mask.doc_start) lo = HWY_MAX(lo, int64_t{static_cast<const int32_t*>(s.mask.doc_start.data)[row]});
        if (s.mask.doc_end) hi = HWY_MIN(hi, int64_t{static_cast<const int32_t*>(s.mask.doc_end.data)[row]} - 1);
        lo = HWY_MIN(HWY_MAX(lo - s.mask.kv_start, int64_t{0}), s.T_kv);
        hi = HWY_MAX(HWY_MIN(hi - s.mask.kv_start, s.T_kv - 1), int64_t{-1});
        bounds.max_hi[v] = HWY_MAX(bounds.max_hi[v], hi);
        if (lo <= hi) {
          bounds.key_begin = HWY_MIN(bounds.key_begin, lo);
          bounds.key_end = HWY_MAX(bounds.key_end, hi + 1);
        }
      }
      bounds.lo[i] = static_cast<Int>(lo);
      bounds.hi[i] = static_cast<Int>(hi);
      bounds.open_begin[v] = HWY_MAX(bounds.open_begin[v], lo);
      bounds.open_end[v] = HWY_MIN(bounds.open_end[v], hi + 1);
    }
  }
  if (bounds.key_begin > bounds.key_end) bounds.key_begin = bounds.key_end;
}

/// Returns the lanes of vector v that see key j.
template <typename T>
HWY_INLINE auto seen(const Bounds<T>& bounds, int64_t v, int64_t j) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  const auto key = hn::Set(di, static_cast<typename Bounds<T>::Int>(j));
  const auto one = hn::Set(di, 1);
  const auto before = hn::Sub(hn::Load(di, bounds.lo + v * kLanes<T>), one);
  const auto past = hn::Add(hn::Load(di, bounds.hi + v * kLanes<T>), one);
  return hn::RebindMask(d, hn::And(hn::Gt(key, before), hn::Gt(past, key)));
}

/// c[key][query] = sum_d a[key][d] bt[d][query] for the queries that see at least one of the keys.
template <typename T>
HWY_INLINE void block_products(const Bounds<T>& bounds, const T* a, int64_t D, int64_t Dp, const T* bt,
                               int64_t key_begin, int64_t keys, T* c) {
  int64_t vector = 0;
  for (int64_t j = 0; j < keys; j += kTileRows) {
    while (bounds.max_hi[vector] < key_begin + j) ++vector;
    product<T>({.a = a + j * Dp,
                .a_row = Dp,
                .a_k = 1,
                .b = bt + vector * kLanes<T>,
                .b_row = kBlock,
                .c = c + j * kBlock + vector * kLanes<T>,
                .c_row = kBlock,
                .zero = true,
                .rows = HWY_MIN(keys - j, int64_t{kTileRows}),
                .vectors = bounds.num_vectors - vector,
                .k = D});
  }
}

/// sums[query][d] = scale[query] sums[query][d] + sum over keys of weights[key][query] rows[key][d]. Without `scale`
/// (null), the factors are 1.
template <typename T>
HWY_INLINE void gather_over_keys(const Bounds<T>& bounds, const T* weights, const T* rows, int64_t Dp,
                                 int64_t key_begin, int64_t keys, const T* scale, T* sums) {
  for (int64_t i = 0; i < bounds.num_queries; i += kTileRows) {
    const int64_t queries = HWY_MIN(bounds.num_queries - i, int64_t{kTileRows});
    const int64_t last = static_cast<int64_t>(bounds.hi[i + queries - 1]);
    product<T>({.a = weights + i,
                .a_row = 1,
                .a_k = kBlock,
                .b = rows,
                .b_row = Dp,
                .c = sums + i * Dp,
                .c_row = Dp,
                .c_scale = scale != nullptr ? scale + i : nullptr,
                .rows = queries,
                .vectors = Dp / kLanes<T>,
                .k = HWY_MAX(HWY_MIN(keys, last + 1 - key_begin), int64_t{0})});
  }
}

/// ScoreChange (core/backend/attention.h) of one head, applied to the scaled products q.k. The scores and all members
/// are divided by ln 2, so that softmax can use exp2.
template <typename T>
struct HeadScores {
  T softcap = 0;              // 0 = no soft cap
  T slope = 0;                // ALiBi slope of this head
  const T* biases = nullptr;  // [kDistances] T5's biases for one block of queries and one of keys, or null
  bool active() const { return softcap != 0 || slope != 0 || biases != nullptr; }
};

/// Size of an array with an entry for each distance i - j between a block of queries and a block of keys, and one more
/// entry to fill a vector. Entry x is for the distance d + x - (kBlock - 1), where d is the distance i - j of the first
/// query and the first key.
inline constexpr int64_t kDistances = 2 * kBlock;

/// Calls use(x, bucket) for each entry x of an array by distance (kDistances); `first` is the distance of the first
/// query and key. In causal attention negative distances get the bucket of distance 0; their keys are masked.
template <typename Use>
HWY_INLINE void each_bucket(const AttentionShape& s, int64_t first, const Use& use) {
  const int32_t* buckets = static_cast<const int32_t*>(s.scores.t5_buckets.data);
  const int64_t last = s.scores.t5_buckets.size() - 1, zero = s.mask.causal ? 0 : last / 2;
  for (int64_t x = 0; x < kDistances; ++x)
    use(x, buckets[HWY_MIN(HWY_MAX(zero + first + x - (kBlock - 1), int64_t{0}), last)]);
}

/// Writes T5's biases of head h by distance, divided by ln 2, to `biases`.
template <typename T>
HWY_NOINLINE void gather_biases(const AttentionShape& s, int64_t h, int64_t first, T* HWY_RESTRICT biases) {
  const ConstView& t5 = s.scores.t5_bias;
  with_types(t5.dtype, [&](auto storage, auto wide) {
    using S = decltype(storage);
    const S* table = static_cast<const S*>(t5.data) + h;
    each_bucket(s, first, [&](int64_t x, int32_t bucket) {
      const auto bias = static_cast<decltype(wide)>(table[bucket * t5.stride]);
      biases[x] = static_cast<T>(bias) * std::numbers::log2e_v<T>;
    });
  });
}

/// Returns the score changes of head h for keys from key_begin on. If there is a T5 table, `biases` is scratch memory
/// for kDistances numbers.
template <typename T>
HWY_INLINE HeadScores<T> head_scores(const AttentionShape& s, int64_t h, const Bounds<T>& bounds, int64_t key_begin,
                                     T* biases) {
  const ScoreChange& c = s.scores;
  if (c.t5_bias) gather_biases(s, h, bounds.diagonal - key_begin, biases);
  const double slope = c.alibi_slopes ? static_cast<double>(static_cast<const T*>(c.alibi_slopes.data)[h]) : 0;
  return {.softcap = static_cast<T>(c.softcap * std::numbers::log2e),
          .slope = static_cast<T>(slope * std::numbers::log2e),
          .biases = c.t5_bias ? biases : nullptr};
}

/// Changes the scores of one vector of queries and one block of keys: score = softcap * tanh(score / softcap) - slope *
/// |i - j| + bias. If `derivatives` is not null, writes d score / d (q.k * scale) = 1 - tanh^2 to it.
template <typename T>
HWY_NOINLINE void change_scores(const HeadScores<T>& change, const Bounds<T>& bounds, int64_t v, int64_t key_begin,
                                int64_t keys, T* HWY_RESTRICT scores, T* HWY_RESTRICT derivatives) {
  const Tag<T> d;
  const auto one = hn::Set(d, T{1}), slope = hn::Set(d, change.slope);
  const auto cap = hn::Set(d, change.softcap), inverse = hn::Set(d, change.softcap != 0 ? 1 / change.softcap : T{0});
  // The distance of lane 0 is an integer below 2^24, so it is exact in fp32.
  const auto first = hn::Iota(d, static_cast<T>(bounds.diagonal + v * kLanes<T> - key_begin));
  for (int64_t j = 0; j < keys; ++j) {
    T* HWY_RESTRICT at = scores + j * kBlock + v * kLanes<T>;
    auto s = hn::Load(d, at);
    if (change.softcap != 0) {
      const auto x = hn::Mul(s, inverse);
      const auto t = hn::IfThenElse(hn::Eq(x, x), hn::Tanh(d, x), x);  // Highway's Tanh of NaN is a number
      s = hn::Mul(cap, t);
      if (derivatives != nullptr) {
        hn::Store(hn::NegMulAdd(t, t, one), d, derivatives + j * kBlock + v * kLanes<T>);
      }
    }
    s = hn::NegMulAdd(slope, hn::Abs(hn::Sub(first, hn::Set(d, static_cast<T>(j)))), s);
    if (change.biases != nullptr) s = hn::Add(s, hn::LoadU(d, change.biases + v * kLanes<T> - j + kBlock - 1));
    hn::Store(s, d, at);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu::attention
HWY_AFTER_NAMESPACE();

#endif  // ASHLAR_KERNELS_CPU_ATTENTION_SOFTMAX_INL_H_
