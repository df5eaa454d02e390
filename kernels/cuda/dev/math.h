#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cuda/dev/kernel.h"
#include "kernels/cuda/dev/ptx.h"

/// Math functions on the accumulate types (fp32, fp64). All but logistic and normal_distribution propagate NaN. They
/// use only correctly rounded operations: +, -, *, /, square root and explicit fused multiply-adds (contraction by the
/// compiler is off). So results are bit-identical on the emulated device and on every GPU, for every CUDA version.
/// Unless a comment says otherwise, the polynomials are our own minimax fits, computed with the Remez exchange at 60
/// digits. With `kFast`, a function uses the GPU's approximate exponential and division instead (relative error about
/// 2^-22 in fp32); use it only for results stored as bf16.
namespace ashlar::ASHLAR_DEV {

__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }

namespace internal {

/// Evaluates a polynomial by Horner's scheme. `first` is the coefficient of the highest power, the last argument is the
/// constant term.
template <typename A, typename... Rest>
__device__ __forceinline__ A polynomial(A x, A first, Rest... rest) {
  ((first = fused(first, x, rest)), ...);
  return first;
}

/// Returns y * 2^n for 1/2 < y < 2, rounded once. n may be so low or high that the result is zero or infinite. 2^n is
/// split into two factors, since it may overflow where the result does not.
__device__ __forceinline__ float scaled(float y, int n) {
  const int half = n >> 1;
  return y * std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23) *
         std::bit_cast<float>(static_cast<uint32_t>(n - half + 127) << 23);
}
__device__ __forceinline__ double scaled(double y, int n) {
  const int half = n >> 1;
  return y * std::bit_cast<double>(static_cast<uint64_t>(half + 1023) << 52) *
         std::bit_cast<double>(static_cast<uint64_t>(n - half + 1023) << 52);
}

}  // namespace internal

/// Returns exp(x) = 2^n exp(r), where r = x - n ln 2 and exp(r) = 1 + r + r^2 q(r). In fp32 the polynomial q has degree
/// 4 (fit error 3.2e-9), and the result is within 1.05 ulp. In fp64 q has degree 10 (fit error 5.5e-20), and the result
/// is within 1.01 ulp. Beyond the type's range the result is infinity or zero. Subnormal results are rounded once.
template <bool kFast = false>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (kFast) return ex2(x * 1.44269504F);
  const float bounded = x > 89.0F ? 89.0F : x < -105.0F ? -105.0F : x;  // this order of comparisons keeps NaN
  // Adding 1.5 * 2^23 rounds to an integer and leaves this integer in the low bits of the sum.
  const float shifted = fmaf(bounded, 1.44269504F, 0x1.8p23F);
  const float n = shifted - 0x1.8p23F;
  const float r = fmaf(n, 0x1.05c61p-29F, fmaf(n, -0x1.62e43p-1F, bounded));
  const float q = internal::polynomial(r, 0x1.6db594p-10F, 0x1.123be0p-7F, 0x1.55545cp-5F, 0x1.55548ep-3F, 0.5F);
  const float y = fmaf(q, r * r, r) + 1.0F;
  return internal::scaled(y, static_cast<int>(std::bit_cast<uint32_t>(shifted) - 0x4b400000U));
}
template <bool kFast = false>
__device__ __forceinline__ double exponential(double x) {
  const double bounded = x > 710.0 ? 710.0 : x < -746.0 ? -746.0 : x;
  const double shifted = fma(bounded, 1.4426950408889634074, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, bounded));
  const double q =
      internal::polynomial(r, 0x1.1f9e336b0503dp-29, 0x1.af6d465ada6d3p-26, 0x1.27e4befdd4f6cp-22,
                           0x1.71ddef4f52be2p-19, 0x1.a01a01b470aefp-16, 0x1.a01a01b3d5f9dp-13, 0x1.6c16c16c13528p-10,
                           0x1.111111110eb6fp-7, 0x1.555555555555ep-5, 0x1.555555555555cp-3, 0.5);
  const double y = fma(q, r * r, r) + 1.0;
  return internal::scaled(y, static_cast<int>(std::bit_cast<uint64_t>(shifted) - 0x4338000000000000ULL));
}

/// Returns exp(x) - 1 for x <= 0 without cancellation. With exp(x) = 2^n (1 + p), where p = r + r^2 q(r) as in
/// exponential(), the result is 2^n p + (2^n - 1). The error is at most 2 ulp. Results that round to -1 are exactly -1.
__device__ __forceinline__ float exponential_minus_one(float x) {
  const float bounded = x < -80.0F ? -80.0F : x;  // this order of operands keeps NaN
  const float shifted = fmaf(bounded, 1.44269504F, 0x1.8p23F);
  const float n = shifted - 0x1.8p23F;
  const float r = fmaf(n, 0x1.05c61p-29F, fmaf(n, -0x1.62e43p-1F, bounded));
  const float q = internal::polynomial(r, 0x1.6db594p-10F, 0x1.123be0p-7F, 0x1.55545cp-5F, 0x1.55548ep-3F, 0.5F);
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) - 0x4b400000U + 127U) << 23);
  return fmaf(fmaf(q, r * r, r), power, power - 1.0F);
}
__device__ __forceinline__ double exponential_minus_one(double x) {
  const double bounded = x < -80.0 ? -80.0 : x;
  const double shifted = fma(bounded, 1.4426950408889634074, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = fma(n, -0x1.abc9e3b39803fp-56, fma(n, -0x1.62e42fefa39efp-1, bounded));
  const double q =
      internal::polynomial(r, 0x1.1f9e336b0503dp-29, 0x1.af6d465ada6d3p-26, 0x1.27e4befdd4f6cp-22,
                           0x1.71ddef4f52be2p-19, 0x1.a01a01b470aefp-16, 0x1.a01a01b3d5f9dp-13, 0x1.6c16c16c13528p-10,
                           0x1.111111110eb6fp-7, 0x1.555555555555ep-5, 0x1.555555555555cp-3, 0.5);
  const double power =
      std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) - 0x4338000000000000ULL + 1023ULL) << 52);
  return fma(fma(q, r * r, r), power, power - 1.0);
}

namespace internal {

/// Returns the logarithm of the special arguments: 0, negative numbers, infinity and NaN.
template <typename A>
__device__ __forceinline__ A special_logarithm(A x) {
  return x == A{0} ? -std::numeric_limits<A>::infinity() : x < A{0} ? std::numeric_limits<A>::quiet_NaN() : x;
}

}  // namespace internal

/// Returns the natural logarithm of x = 2^e m, where sqrt(1/2) <= m < sqrt(2), with f = m - 1 and a polynomial p.
/// fp32: log m = f + f^2 (f p(f) - 1/2). p has degree 8 (fit error 7.6e-10); the result is within 0.901 ulp.
/// fp64: log m = f - (f^2/2 - s (f^2/2 + s^2 p(s^2))) with s = f/(2 + f). p has degree 6 (fit error 1.3e-18); the
/// result is within 0.9 ulp.
__device__ __forceinline__ float logarithm(float x) {
  if (!(x > 0.0F && x < std::numeric_limits<float>::infinity())) return internal::special_logarithm(x);
  const bool subnormal = x < 0x1p-126F;
  const auto bits = std::bit_cast<uint32_t>(subnormal ? x * 0x1p23F : x);
  const int exponent = static_cast<int>(bits - 0x3f3504f3U) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0F;
  const auto e = static_cast<float>(subnormal ? exponent - 23 : exponent);
  const float p =
      internal::polynomial(f, 0x1.146d04p-4F, -0x1.de54eap-4F, 0x1.e6f442p-4F, -0x1.fc1e7ep-4F, 0x1.2336f6p-3F,
                           -0x1.555c60p-3F, 0x1.99a4bap-3F, -0x1.000006p-2F, 0x1.555548p-2F);
  const float log_m = fmaf(f * f, fmaf(f, p, -0.5F), f);
  return fmaf(e, 0x1.62e43p-1F, fmaf(e, -0x1.05c61p-29F, log_m));
}
__device__ __forceinline__ double logarithm(double x) {
  if (!(x > 0.0 && x < std::numeric_limits<double>::infinity())) return internal::special_logarithm(x);
  const bool subnormal = x < 0x1p-1022;
  const auto bits = std::bit_cast<uint64_t>(subnormal ? x * 0x1p52 : x);
  const int exponent = static_cast<int>(static_cast<int64_t>(bits - 0x3fe6a09e667f3bcdULL) >> 52);
  const double f = std::bit_cast<double>(bits - (static_cast<uint64_t>(static_cast<int64_t>(exponent)) << 52)) - 1.0;
  const auto e = static_cast<double>(subnormal ? exponent - 52 : exponent);
  const double s = f / (2.0 + f), z = s * s, half_square = 0.5 * (f * f);
  const double p =
      internal::polynomial(z, 0x1.2f15bcde29da1p-3, 0x1.39a02ef39a02dp-3, 0x1.74664d741fa81p-3, 0x1.c71c51c682b70p-3,
                           0x1.249249423e2b4p-2, 0x1.999999997f8abp-2, 0x1.5555555555593p-1);
  const double inner = fma(z, p, half_square);
  const double below = fma(s, inner, fma(e, 0x1.abc9e3b39803fp-56, -half_square));
  return fma(e, 0x1.62e42fefa39efp-1, f + below);
}

/// Computes cos and sin of 0 <= x <= 2 pi within 1.5 ulp. Reduces x to y = x - q pi/2 with an integer q, so that |y| <=
/// pi/4, and evaluates polynomials of degree 6 in y^2.
__device__ __forceinline__ void cosine_and_sine(double x, double& cosine, double& sine) {
  const double q = fma(x, 0.63661977236758134308, 0x1.8p52) - 0x1.8p52;
  const double y = fma(q, -0x1.1a62633145c07p-54, fma(q, -0x1.921fb54442d18p+0, x)), z = y * y;
  const double sine_part =
      internal::polynomial(z, -0x1.aaa55d0e54611p-41, 0x1.612092e27724dp-33, -0x1.ae6452988cca5p-26,
                           0x1.71de3a5339a79p-19, -0x1.a01a01a018ae6p-13, 0x1.111111111110bp-7, -0x1.5555555555555p-3);
  const double s = fma(y * z, sine_part, y);
  const double cosine_part =
      internal::polynomial(z, 0x1.aac5c2ca5e9ddp-45, -0x1.93933870bf14dp-37, 0x1.1eed8ca3d23ffp-29,
                           -0x1.27e4fb75fd98fp-22, 0x1.a01a01a018decp-16, -0x1.6c16c16c16c10p-10, 0x1.5555555555555p-5);
  const double c = fma(z, fma(z, cosine_part, -0.5), 1.0);
  const int quadrant = static_cast<int>(q) & 3;
  cosine = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
  sine = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
}

template <typename A>
__device__ __forceinline__ A infinity() {
  return std::numeric_limits<A>::infinity();
}

template <typename A>
__device__ __forceinline__ bool is_finite(A x) {
  return fabs(x) < infinity<A>();
}

/// Returns 1/x for 1 <= x < 2^126.
template <bool kFast, typename A>
__device__ __forceinline__ A reciprocal(A x) {
  if constexpr (kFast && sizeof(A) == 4) {
    return __fdividef(1.0F, x);
  } else {
    return A{1} / x;
  }
}

/// Computes s = 1/(1+exp(-x)) and r = 1 - s, both without cancellation. s and r are not NaN where x is NaN, so a caller
/// that must propagate NaN multiplies by x.
template <bool kFast, typename A>
__device__ __forceinline__ void logistic(A x, A& s, A& r) {
  constexpr A kBound = sizeof(A) == 4 ? 86 : 700;  // below -kBound exp(-x) nears overflow, so s is set to 0
  const A e = exponential<kFast>(min(kBound, -x));
  const A inverse = reciprocal<kFast>(A{1} + e);
  r = e * inverse;
  s = x < -kBound ? A{0} : inverse;
}

/// Returns tanh x within 2 ulp. For |x| <= 0.625 it is the odd polynomial x + x^3 p(x^2), fitted at Chebyshev nodes in
/// 60 digits: p has degree 5 (fit error 5.9e-10) in fp32 and degree 12 (5.4e-20) in fp64. For larger |x| it is
/// 1 - 2/(1 + exp(2 |x|)) with the sign of x.
template <bool kFast, typename A>
__device__ __forceinline__ A hyperbolic_tangent(A x) {
  const A size = fabs(x), z = x * x;
  A p;
  if constexpr (sizeof(A) == 4) {
    p = internal::polynomial(z, 0x1.2c83c0p-9F, -0x1.116a16p-7F, 0x1.64a976p-6F, -0x1.ba08c4p-5F, 0x1.1110eap-3F,
                             -0x1.555556p-2F);
  } else {
    p = internal::polynomial(z, -0x1.47559de55bc91p-19, 0x1.99b26df70cccdp-17, -0x1.370efd62e9535p-15,
                             0x1.92d3563b405ccp-14, -0x1.f4fccb8116f0ap-13, 0x1.355204d5878bep-11,
                             -0x1.7da2fd76a3cf1p-10, 0x1.d6d3cc561e69ap-9, -0x1.226e354ddfe9ap-7, 0x1.664f488279254p-6,
                             -0x1.ba1ba1ba1aff0p-5, 0x1.111111111110dp-3, -0x1.5555555555555p-2);
  }
  const A small = fused(x * z, p, x);
  constexpr A kBound = sizeof(A) == 4 ? 20 : 40;  // tanh rounds to 1 from here on
  const A large = A{1} - A{2} * reciprocal<kFast>(A{1} + exponential<kFast>(A{2} * min(kBound, size)));
  if (size > A{0.625}) return x < A{0} ? -large : large;
  return small;  // reached by NaN too
}

/// Computes the normal distribution function Phi(x), with relative accuracy in both tails, and its density phi(x).
/// For t = |x|, Phi(-t) = exp(-t^2/2) M(t). fp32: M(t) is k times a polynomial in k = 1/(1 + 0.24 t), fitted at
/// Chebyshev nodes for 0 <= t <= 15 with maximum relative error 4e-9 (kernels/cpu/simd_math_inl.h uses the same
/// polynomial); beyond 15 exp underflows. fp64: M(t) is a polynomial in k = (t - 5)/(t + 5), divided by t + 5, with
/// relative error 1.2e-17 for 0 <= t <= 39. Phi is within 8 ulp, phi within 3.5 ulp.
template <bool kFast>
__device__ __forceinline__ void normal_distribution(float x, float& distribution, float& density) {
  const float t = min(40.0F, fabsf(x));
  // exp(-t^2/2), compensated for the rounding error of the square.
  const float square = t * t;
  const float lost = fmaf(t, t, -square);
  const float e = exponential<kFast>(-0.5F * square);
  const float gauss = fmaf(-0.5F * lost, e, e);
  density = gauss * 0.398942280401432678F;
  const float k = reciprocal<kFast>(fmaf(0.24F, t, 1.0F));
  const float p =
      internal::polynomial(k, 0.0257705640203F, -0.126026277585F, 0.208899150502F, -0.149046478732F, 0.145612390764F,
                           0.0258149389017F, 0.0886095470202F, 0.0887441226929F, 0.0958812665919F, 0.0957407773738F);
  const float m = p * k;
  distribution = x < 0.0F ? m * gauss : fmaf(-m, gauss, 1.0F);
}
template <bool kFast>
__device__ __forceinline__ void normal_distribution(double x, double& distribution, double& density) {
  const double t = min(40.0, fabs(x));
  const double square = t * t;
  const double lost = fma(t, t, -square);
  const double e = exponential(-0.5 * square);
  const double gauss = fma(-0.5 * lost, e, e);
  density = gauss * 0.398942280401432677939946;
  const double k = (t - 5.0) / (t + 5.0);
  const double p = internal::polynomial(
      k, -0x1.5d26340ff95b4p-33, 0x1.e1dfd082669c9p-30, 0x1.074d17a738a60p-27, -0x1.4002f2e969bbcp-27,
      -0x1.1b383be38249ep-24, 0x1.6b23b1c1c1515p-25, 0x1.d114e6bba97a0p-22, -0x1.697020b9644f5p-22,
      -0x1.73af4afacfcbap-19, 0x1.0b2760d8b1777p-18, 0x1.17dd44798bf8cp-16, -0x1.a170d475ef56ep-15,
      -0x1.f21467ad6278dp-15, 0x1.1daf1d4d75665p-11, -0x1.a25037c87b0ecp-11, -0x1.88590eaafa38ap-9,
      0x1.54b4d4f4b669dp-6, -0x1.1b1c254c9a2e6p-4, 0x1.51f6329f0187bp-3, -0x1.410ed5f875a7ap-2, 0x1.fb31653876f8fp-2,
      -0x1.54ad03f27ca17p-1, 0x1.89d3abe1f95aep-1);
  const double m = p / (t + 5.0);
  distribution = x < 0.0 ? m * gauss : fma(-m, gauss, 1.0);
}

}  // namespace ashlar::ASHLAR_DEV
