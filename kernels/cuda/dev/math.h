#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/dev/kernel.h"

/// Functions of the accumulate types, with NaN kept. `kFast` takes the GPU's approximate exponential and division,
/// relative errors of about 2^-22 in fp32: for results that are stored as bf16. The others are good to 1 or 2 ulp.
namespace ashlar::ASHLAR_DEV {

template <bool kFast = false>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (kFast) {
    return __expf(x);
  } else {
    return expf(x);
  }
}
template <bool kFast = false>
__device__ __forceinline__ double exponential(double x) {
  return exp(x);
}

__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }

template <typename A>
__device__ __forceinline__ A infinity() {
  return std::numeric_limits<A>::infinity();
}

template <typename A>
__device__ __forceinline__ bool is_finite(A x) {
  return fabs(x) < infinity<A>();
}

/// 1/x of 1 <= x < 2^126.
template <bool kFast, typename A>
__device__ __forceinline__ A reciprocal(A x) {
  if constexpr (kFast && sizeof(A) == 4) {
    return __fdividef(1.0F, x);
  } else {
    return A{1} / x;
  }
}

/// s = 1/(1+exp(-x)) and r = 1 - s, both without cancellation. NaN must be kept by the caller's product with x.
template <bool kFast, typename A>
__device__ __forceinline__ void logistic(A x, A& s, A& r) {
  constexpr A kBound = sizeof(A) == 4 ? 86 : 700;  // beyond it exp(-x) nears overflow and s is 0
  const A e = exponential<kFast>(min(kBound, -x));
  const A inverse = reciprocal<kFast>(A{1} + e);
  r = e * inverse;
  s = x < -kBound ? A{0} : inverse;
}

/// Phi(x), the normal distribution, with relative accuracy in both tails, and its density phi(x).
/// fp32: Phi(-t) = exp(-t^2/2) M(t), M a polynomial in k = 1/(1 + 0.24 t) times k with maximum relative error 4e-9,
/// fitted at Chebyshev nodes for 0 <= t <= 15 (kernels/cpu/simd_math_inl.h has the same); beyond, exp underflows.
template <bool kFast>
__device__ __forceinline__ void normal_distribution(float x, float& distribution, float& density) {
  const float t = min(40.0F, fabsf(x));
  // exp(-t^2/2), with the rounding error of the square put back.
  const float square = t * t;
  const float lost = fmaf(t, t, -square);
  const float e = exponential<kFast>(-0.5F * square);
  const float gauss = fmaf(-0.5F * lost, e, e);
  density = gauss * 0.398942280401432678F;
  const float k = reciprocal<kFast>(fmaf(0.24F, t, 1.0F));
  float m = 0.0257705640203F;
  m = fmaf(m, k, -0.126026277585F);
  m = fmaf(m, k, 0.208899150502F);
  m = fmaf(m, k, -0.149046478732F);
  m = fmaf(m, k, 0.145612390764F);
  m = fmaf(m, k, 0.0258149389017F);
  m = fmaf(m, k, 0.0886095470202F);
  m = fmaf(m, k, 0.0887441226929F);
  m = fmaf(m, k, 0.0958812665919F);
  m = fmaf(m, k, 0.0957407773738F);
  const float tail = m * k * gauss;
  distribution = x < 0.0F ? tail : 1.0F - tail;
}
template <bool kFast>
__device__ __forceinline__ void normal_distribution(double x, double& distribution, double& density) {
  const double t = min(40.0, fabs(x));
  density = exp(-0.5 * t * t) * 0.398942280401432677939946;
  distribution = 0.5 * erfc(-x * 0.707106781186547524400844);
}

}  // namespace ashlar::ASHLAR_DEV
