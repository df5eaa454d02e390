// Philox4x32-10 in vectors: computes the same words as core/base/philox.h, for many counters at a time.

// The include guard is toggled, since Highway includes this file once per target.
#if defined(ASHLAR_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_PHILOX_INL_H_
#undef ASHLAR_KERNELS_CPU_PHILOX_INL_H_
#else
#define ASHLAR_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// The four words of several counters, one counter in each 64-bit lane. A word is in the low half of its lane. The high
/// halves are undefined: products use low halves only, and stores mask the high halves.
struct PhiloxLanes {
  hn::Vec<hn::ScalableTag<uint64_t>> word[4];
};

/// Returns the counters {lo(index), hi(index), c2, c3}, one for each lane of `index`.
HWY_INLINE PhiloxLanes philox_counters(hn::Vec<hn::ScalableTag<uint64_t>> index, uint32_t c2, uint32_t c3) {
  const hn::ScalableTag<uint64_t> d64;
  return {{index, hn::ShiftRight<32>(index), hn::Set(d64, c2), hn::Set(d64, c3)}};
}

HWY_INLINE void philox_round(PhiloxLanes& x, uint32_t k0, uint32_t k1) {
  const hn::ScalableTag<uint64_t> d64;
  const hn::Repartition<uint32_t, decltype(d64)> d32;
  const auto p0 = hn::MulEven(hn::BitCast(d32, hn::Set(d64, 0xD2511F53U)), hn::BitCast(d32, x.word[0]));
  const auto p1 = hn::MulEven(hn::BitCast(d32, hn::Set(d64, 0xCD9E8D57U)), hn::BitCast(d32, x.word[2]));
  x.word[0] = hn::Xor3(hn::ShiftRight<32>(p1), x.word[1], hn::Set(d64, uint64_t{k0}));
  x.word[2] = hn::Xor3(hn::ShiftRight<32>(p0), x.word[3], hn::Set(d64, uint64_t{k1}));
  x.word[1] = p1;
  x.word[3] = p0;
}

/// Replaces the counters in each of `lanes` by their Philox4x32-10 words. With two arguments, the processor overlaps
/// the multiplications of both and so hides their latency.
template <typename... Lanes>
HWY_INLINE void philox(uint64_t key, Lanes&... lanes) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    (philox_round(lanes, k0, k1), ...);
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
}

/// Number of blocks that philox_words computes at once.
inline constexpr int64_t kPhiloxBlocks = 2 * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint64_t>()));

/// Writes the words of blocks first, first + 1, ...: for each block the four words of Philox::apply({lo(block),
/// hi(block), c2, c3}, key), in order. `words` has room for the words of num_blocks blocks, rounded up to a multiple of
/// kPhiloxBlocks blocks.
HWY_INLINE void philox_words(uint64_t first, int64_t num_blocks, uint32_t c2, uint32_t c3, uint64_t key,
                             uint32_t* words) {
  const hn::ScalableTag<uint64_t> d64;
  const auto low = hn::Set(d64, 0xFFFFFFFFU);
  for (int64_t block = 0; block < num_blocks; block += kPhiloxBlocks) {
    const auto index = hn::Add(hn::Set(d64, first + static_cast<uint64_t>(block)), hn::Iota(d64, 0));
    PhiloxLanes a = philox_counters(index, c2, c3);
    PhiloxLanes b = philox_counters(hn::Add(index, hn::Set(d64, static_cast<uint64_t>(kPhiloxBlocks / 2))), c2, c3);
    philox(key, a, b);
    const auto join = [&](auto even, auto odd)
                          ASHLAR_SIMD { return hn::Or(hn::And(even, low), hn::ShiftLeft<32>(odd)); };
    uint64_t* out = reinterpret_cast<uint64_t*>(words + 4 * block);
    hn::StoreInterleaved2(join(a.word[0], a.word[1]), join(a.word[2], a.word[3]), d64, out);
    hn::StoreInterleaved2(join(b.word[0], b.word[1]), join(b.word[2], b.word[3]), d64, out + kPhiloxBlocks);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
