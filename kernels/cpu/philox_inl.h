// Philox4x32-10 in vectors: the words of core/base/philox.h, many counters at a time, bit for bit.

// The guard toggles: Highway includes this once per target.
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

/// Words of blocks first, first+1, ... of the function Philox::apply({lo(block), hi(block), c2, c3}, key), four a block
/// in order. `words` has room for num_blocks rounded up to kPhiloxBlocks.
inline constexpr int64_t kPhiloxBlocks = 2 * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint64_t>()));

HWY_INLINE void philox_words(uint64_t first, int64_t num_blocks, uint32_t c2, uint32_t c3, uint64_t key,
                             uint32_t* words) {
  // A counter lives in the low half of each 64-bit lane. What gathers in the high halves is never read: the products
  // take low halves only, and the last step masks. Two vectors of counters at a time hide the products' latency.
  const hn::ScalableTag<uint64_t> d64;
  const hn::Repartition<uint32_t, decltype(d64)> d32;
  const auto m0 = hn::BitCast(d32, hn::Set(d64, 0xD2511F53U));
  const auto m1 = hn::BitCast(d32, hn::Set(d64, 0xCD9E8D57U));
  const auto low = hn::Set(d64, 0xFFFFFFFFU);
  for (int64_t b = 0; b < num_blocks; b += kPhiloxBlocks) {
    const auto index_a = hn::Add(hn::Set(d64, first + static_cast<uint64_t>(b)), hn::Iota(d64, 0));
    const auto index_b = hn::Add(index_a, hn::Set(d64, static_cast<uint64_t>(kPhiloxBlocks / 2)));
    auto a0 = index_a, a1 = hn::ShiftRight<32>(index_a), a2 = hn::Set(d64, c2), a3 = hn::Set(d64, c3);
    auto b0 = index_b, b1 = hn::ShiftRight<32>(index_b), b2 = a2, b3 = a3;
    uint32_t k0 = static_cast<uint32_t>(key);
    uint32_t k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const auto key0 = hn::Set(d64, k0);
      const auto key1 = hn::Set(d64, k1);
      const auto pa0 = hn::MulEven(m0, hn::BitCast(d32, a0));
      const auto pa1 = hn::MulEven(m1, hn::BitCast(d32, a2));
      const auto pb0 = hn::MulEven(m0, hn::BitCast(d32, b0));
      const auto pb1 = hn::MulEven(m1, hn::BitCast(d32, b2));
      a0 = hn::Xor3(hn::ShiftRight<32>(pa1), a1, key0);
      a2 = hn::Xor3(hn::ShiftRight<32>(pa0), a3, key1);
      b0 = hn::Xor3(hn::ShiftRight<32>(pb1), b1, key0);
      b2 = hn::Xor3(hn::ShiftRight<32>(pb0), b3, key1);
      a1 = pa1;
      a3 = pa0;
      b1 = pb1;
      b3 = pb0;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    const auto join = [&](auto even, auto odd)
                          ASHLAR_SIMD { return hn::Or(hn::And(even, low), hn::ShiftLeft<32>(odd)); };
    uint64_t* out = reinterpret_cast<uint64_t*>(words + 4 * b);
    hn::StoreInterleaved2(join(a0, a1), join(a2, a3), d64, out);
    hn::StoreInterleaved2(join(b0, b1), join(b2, b3), d64, out + kPhiloxBlocks);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
