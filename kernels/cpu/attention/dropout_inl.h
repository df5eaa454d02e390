// Dropout factors of attention, compiled once per instruction set. Philox words are computed for many queries at a
// time.

#if defined(ASHLAR_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#undef ASHLAR_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#else
#define ASHLAR_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "core/backend/attention.h"
#include "kernels/cpu/attention/items.h"
#include "kernels/cpu/attention/tile_inl.h"
#include "kernels/cpu/philox_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu::attention {
namespace HWY_NAMESPACE {

using Words = hn::ScalableTag<uint64_t>;
using cpu::HWY_NAMESPACE::PhiloxLanes;

HWY_INLINE PhiloxLanes philox_words(const DropoutArgs& drop, uint32_t step, hn::Vec<Words> index) {
  PhiloxLanes lanes = cpu::HWY_NAMESPACE::philox_counters(index, drop.rng_stream, step);
  cpu::HWY_NAMESPACE::philox(drop.seed, lanes);
  return lanes;
}

/// The queries and keys of a block of dropout factors.
struct DropoutBlock {
  int64_t b = 0, h = 0;
  int64_t t_begin = 0, num_queries = 0;
  int64_t key_begin = 0, num_keys = 0;
};

/// Returns the dropout factors of a vector of queries for one key: `kept` where word number `w` of the query's Philox
/// block, shifted right by 8 bits, is at least the threshold, 0 elsewhere. Rows whose length is a multiple of 4 begin
/// at a Philox block, and element k of such a row uses word k % 4. So four adjacent keys, the first a multiple of 4,
/// need one vector of blocks for a vector of queries (fp32: two, for even and for odd queries).
HWY_INLINE hn::Vec<Tag<float>> kept_lanes(const PhiloxLanes& even, const PhiloxLanes& odd, int w, int32_t threshold,
                                          float kept) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const hn::RebindToUnsigned<Tag<float>> du;
  const auto low = hn::Set(Words(), 0xFFFFFFFFU);
  const auto words = hn::BitCast(du, hn::Or(hn::And(even.word[w], low), hn::ShiftLeft<32>(odd.word[w])));
  const auto keep = hn::Gt(hn::BitCast(di, hn::ShiftRight<8>(words)), hn::Set(di, threshold - 1));
  return hn::IfThenElseZero(hn::RebindMask(d, keep), hn::Set(d, kept));
}
HWY_INLINE hn::Vec<Tag<double>> kept_lanes(const PhiloxLanes& all, const PhiloxLanes& /*odd*/, int w, int32_t threshold,
                                           double kept) {
  const Tag<double> d;
  const hn::RebindToSigned<Tag<double>> di;
  const auto low = hn::And(all.word[w], hn::Set(Words(), 0xFFFFFFFFU));
  const auto keep = hn::Gt(hn::BitCast(di, hn::ShiftRight<8>(low)), hn::Set(di, int64_t{threshold} - 1));
  return hn::IfThenElseZero(hn::RebindMask(d, keep), hn::Set(d, kept));
}

/// factors[j][i] = 0 or 1/(1-p) for key key_begin + j and query t_begin + i, i < kLanes; rows are kBlockSize long. The
/// dropout index of an element is defined in core/backend/common.h. An element is kept iff (word >> 8) >= ceil(p 2^24),
/// which is exactly uniform(word) >= p.
template <typename T>
HWY_NOINLINE void dropout_factors(const AttentionShape& s, const DropoutBlock& block, T* HWY_RESTRICT factors) {
  const DropoutArgs& drop = s.dropout;
  const uint32_t step = drop.step();
  const T kept = static_cast<T>(1.0 / (1.0 - drop.p));
  const auto threshold = static_cast<int32_t>(std::ceil(drop.p * 0x1p24));
  const auto S = static_cast<uint64_t>(drop.sequence_length);
  const uint64_t row = static_cast<uint64_t>((drop.first_sample + block.b) * drop.heads + drop.head0 + block.h) * S +
                       static_cast<uint64_t>(s.mask.q_start + block.t_begin);
  const auto first_key = static_cast<uint64_t>(s.mask.kv_start + block.key_begin);
  if (S % 4 == 0) {
    const Words d64;
    constexpr uint64_t kStep = sizeof(T) == 4 ? 2 : 1;  // number of queries from one 64-bit lane to the next
    alignas(64) uint64_t offsets[hn::MaxLanes(d64)];
    for (uint64_t lane = 0; lane < hn::MaxLanes(d64); ++lane) offsets[lane] = lane * kStep * (S / 4);
    const auto even = hn::Add(hn::Set(d64, row * (S / 4)), hn::Load(d64, offsets));
    const auto odd = hn::Add(even, hn::Set(d64, S / 4));
    for (int64_t j = -static_cast<int64_t>(first_key % 4); j < block.num_keys; j += 4) {
      const auto quad = hn::Set(d64, static_cast<uint64_t>(static_cast<int64_t>(first_key) + j) / 4);
      const PhiloxLanes words = philox_words(drop, step, hn::Add(even, quad));
      const PhiloxLanes more = kStep == 2 ? philox_words(drop, step, hn::Add(odd, quad)) : words;
      for (int w = 0; w < 4; ++w) {
        if (j + w < 0 || j + w >= block.num_keys) continue;
        hn::Store(kept_lanes(words, more, w, threshold, kept), Tag<T>(), factors + (j + w) * kBlockSize);
      }
    }
    return;
  }
  for (int64_t i = 0; i < block.num_queries; ++i) {  // rows may begin inside a Philox block: one query at a time
    const uint64_t first = (row + static_cast<uint64_t>(i)) * S + first_key;
    Philox::Counter words{};
    for (int64_t j = 0; j < block.num_keys; ++j) {
      const uint64_t e = first + static_cast<uint64_t>(j);
      if (j == 0 || e % 4 == 0) words = drop.words(e / 4, step);
      factors[j * kBlockSize + i] = static_cast<int32_t>(words[e % 4] >> 8) >= threshold ? kept : T{0};
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu::attention
HWY_AFTER_NAMESPACE();

#endif  // ASHLAR_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
