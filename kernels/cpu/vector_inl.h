// Vector loads and stores for all kernels of this folder: bf16 is converted to and from fp32, other types are
// unchanged. Compiled once per instruction set.

// The include guard is toggled, since Highway includes this file once per target.
#if defined(ASHLAR_KERNELS_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_VECTOR_INL_H_
#undef ASHLAR_KERNELS_CPU_VECTOR_INL_H_
#else
#define ASHLAR_KERNELS_CPU_VECTOR_INL_H_
#endif

#include <cstdint>

#include "core/base/bf16.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BF16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}
/// Stores an fp32 vector as bf16, rounded to nearest even like BF16::round_bits.
template <class D>
HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, BF16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> i32;
  const auto bits = hn::BitCast(d32, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto is_number = hn::RebindMask(d32, hn::Eq(v, v));  // Ne of Highway 1.0.3 is false for NaN
  const auto out = hn::IfThenElse(is_number, rounded, hn::Or(upper, hn::Set(d32, 0x40)));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(i32, out)), d16, reinterpret_cast<uint16_t*>(p));
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
