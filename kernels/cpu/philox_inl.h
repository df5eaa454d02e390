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
inline constexpr int64_t kPhiloxBlocks = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<uint64_t>()));

HWY_INLINE void philox_words(uint64_t first, int64_t num_blocks, uint32_t c2, uint32_t c3, uint64_t key,
                             uint32_t* words) {
  // A counter lives in the low half of each 64-bit lane. What gathers in the high halves is never read: the products
  // take low halves only, and the last step masks.
  const hn::ScalableTag<uint64_t> d64;
  const hn::Repartition<uint32_t, decltype(d64)> d32;
  const auto m0 = hn::BitCast(d32, hn::Set(d64, 0xD2511F53U));
  const auto m1 = hn::BitCast(d32, hn::Set(d64, 0xCD9E8D57U));
  const auto low = hn::Set(d64, 0xFFFFFFFFU);
  for (int64_t b = 0; b < num_blocks; b += kPhiloxBlocks) {
    const auto index = hn::Add(hn::Set(d64, first + static_cast<uint64_t>(b)), hn::Iota(d64, 0));
    auto x0 = index;
    auto x1 = hn::ShiftRight<32>(index);
    auto x2 = hn::Set(d64, c2);
    auto x3 = hn::Set(d64, c3);
    uint32_t k0 = static_cast<uint32_t>(key);
    uint32_t k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = hn::MulEven(m0, hn::BitCast(d32, x0));
      const auto p1 = hn::MulEven(m1, hn::BitCast(d32, x2));
      x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), x1), hn::Set(d64, k0));
      x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), x3), hn::Set(d64, k1));
      x1 = p1;
      x3 = p0;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    const auto w01 = hn::Or(hn::And(x0, low), hn::ShiftLeft<32>(x1));
    const auto w23 = hn::Or(hn::And(x2, low), hn::ShiftLeft<32>(x3));
    hn::StoreInterleaved2(w01, w23, d64, reinterpret_cast<uint64_t*>(words + 4 * b));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
