// Vector functions that Highway does not have: an exponential that keeps NaN, the logistic function with its
// complement, and the normal distribution with its density. Their errors are about 1 to 2 ulp in fp32.

// The include guard is toggled, since Highway includes this file once per target.
#if defined(ASHLAR_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ASHLAR_KERNELS_CPU_SIMD_MATH_INL_H_
#undef ASHLAR_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define ASHLAR_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ashlar::cpu {
namespace HWY_NAMESPACE {

/// Returns exp(x) for x <= 88. NaN stays NaN, since a NaN loss must be noticed. In fp32, results below the smallest
/// normal number are 0. fp32: x = n ln2 + r with |r| <= ln2/2, and exp(r) = 1 + r + r^2 q(r), where q is a polynomial
/// of degree 4 fitted at Chebyshev nodes (fit error 1.1e-8). The result is within about 1 ulp and takes half the
/// instructions of Highway's Exp. fp64 uses Highway's Exp.
template <class D>
HWY_INLINE VecOf<D> exp_below_88(D d, VecOf<D> x) {
  using A = hn::TFromD<D>;
  if constexpr (sizeof(A) == 8) {
    return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);  // Highway's Exp returns zero for NaN
  } else {
    const hn::RebindToUnsigned<D> du;
    // Adding 1.5 * 2^23 rounds to an integer and leaves this integer in the low bits of the sum.
    const auto magic = hn::Set(d, 0x1.8p23F);
    const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504089F), magic);
    const auto n = hn::Sub(shifted, magic);
    auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
    r = hn::MulAdd(n, hn::Set(d, 0.000212194440055F), r);
    auto q = hn::MulAdd(r, hn::Set(d, 0.001392618359F), hn::Set(d, 0.008363179053F));
    q = hn::MulAdd(q, r, hn::Set(d, 0.04166655462F));
    q = hn::MulAdd(q, r, hn::Set(d, 0.1666657699F));
    q = hn::MulAdd(q, r, hn::Set(d, 0.5F));
    const auto y = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), hn::Set(d, 1.0F));
    const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 0x3F800000U));
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3F)), hn::Mul(y, hn::BitCast(d, power)));
  }
}

/// Computes s = 1/(1+exp(-x)) and r = 1 - s, both without cancellation. s and r are not NaN where x is NaN, so a caller
/// that must propagate NaN multiplies by x.
template <class D>
HWY_INLINE void logistic(D d, VecOf<D> x, VecOf<D>& s, VecOf<D>& r) {
  using A = hn::TFromD<D>;
  const auto one = hn::Set(d, A{1});
  const auto bound = hn::Set(d, A{sizeof(A) == 4 ? 86 : 700});  // keeps exp(-x) finite; s = 0 for x < -bound
  const auto e = exp_below_88(d, hn::Min(bound, hn::Neg(x)));
  const auto reciprocal = hn::Div(one, hn::Add(one, e));
  r = hn::Mul(e, reciprocal);
  s = hn::IfThenZeroElse(hn::Lt(x, hn::Neg(bound)), reciprocal);
}

/// Computes the normal distribution function Phi(x), with relative accuracy in both tails, and its density phi(x).
/// fp32: for t = |x|, Phi(-t) = exp(-t^2/2) M(t), where M(t) is k times a polynomial in k = 1/(1 + 0.24 t), fitted at
/// Chebyshev nodes for 0 <= t <= 15 with maximum relative error 4e-9; beyond 15 exp underflows. fp64: libm's erfc.
template <class D>
HWY_INLINE void normal_distribution(D d, VecOf<D> x, VecOf<D>& distribution, VecOf<D>& density) {
  using A = hn::TFromD<D>;
  const auto t = hn::Min(hn::Set(d, A{40}), hn::Abs(x));
  const auto half = hn::Set(d, static_cast<A>(0.5));
  // exp(-t^2/2), compensated for the rounding error of the square.
  const auto square = hn::Mul(t, t);
#if HWY_NATIVE_FMA
  const auto lost = hn::MulSub(t, t, square);
#else
  // t = high + low with 12 bits in high (fp32), so that high^2 is exact. Not needed for fp64.
  const hn::RebindToUnsigned<D> du;
  const auto high =
      sizeof(A) == 4 ? hn::BitCast(d, hn::And(hn::BitCast(du, t), hn::Set(du, ~hwy::MakeUnsigned<A>{0xFFF}))) : t;
  const auto lost = hn::Add(hn::Sub(hn::Mul(high, high), square), hn::Mul(hn::Sub(t, high), hn::Add(t, high)));
#endif
  const auto e = exp_below_88(d, hn::Mul(hn::Neg(half), square));
  const auto gauss = hn::NegMulAdd(hn::Mul(half, lost), e, e);
  density = hn::Mul(gauss, hn::Set(d, static_cast<A>(0.398942280401432677939946)));
  if constexpr (sizeof(A) == 4) {
    const auto one = hn::Set(d, 1.0f);
    const auto k = hn::Div(one, hn::MulAdd(hn::Set(d, 0.24f), t, one));
    constexpr float kCoefficients[] = {0.0257705640203f, -0.126026277585f, 0.208899150502f,  -0.149046478732f,
                                       0.145612390764f,  0.0258149389017f, 0.0886095470202f, 0.0887441226929f,
                                       0.0958812665919f, 0.0957407773738f};
    auto m = hn::Set(d, kCoefficients[0]);
#pragma GCC unroll 16
    for (int i = 1; i < 10; ++i) m = hn::MulAdd(m, k, hn::Set(d, kCoefficients[i]));
    const auto tail = hn::Mul(hn::Mul(m, k), gauss);
    distribution = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  } else {
    alignas(64) A lanes[kLanesOf<D>];
    hn::Store(x, d, lanes);
    for (A& v : lanes) v = 0.5 * std::erfc(-v * 0.707106781186547524400844);
    distribution = hn::Load(d, lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ashlar::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
