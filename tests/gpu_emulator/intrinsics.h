#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tests/gpu_emulator/approximate.h"
#include "tests/gpu_emulator/device_calls.h"
#include "tests/gpu_emulator/vector_types.h"

/// What the code of a kernel sees in place of nvcc's built-ins: they stand in the kernels' own namespace, ASHLAR_DEV,
/// so that a program may hold kernels compiled plainly and kernels compiled with watched accesses side by side.
///
/// Left out on purpose: `__shared__` (ASHLAR_SHARED of kernels/cuda/dev/kernel.h), `<<<>>>`, __activemask and the
/// forms without a mask, and waiting in a loop for another thread, which would never end here.

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

#define threadIdx (::ashlar::emulator::thread_index())
#define blockIdx (::ashlar::emulator::block_index())
#define blockDim (::ashlar::emulator::block_extent())
#define gridDim (::ashlar::emulator::grid_extent())

namespace ashlar::ASHLAR_DEV {

using emulator::dim3;
using emulator::double2;
using emulator::double3;
using emulator::double4;
using emulator::float2;
using emulator::float3;
using emulator::float4;
using emulator::int2;
using emulator::int3;
using emulator::int4;
using emulator::longlong2;
using emulator::make_double2;
using emulator::make_float2;
using emulator::make_float3;
using emulator::make_float4;
using emulator::make_int2;
using emulator::make_int3;
using emulator::make_int4;
using emulator::make_uint2;
using emulator::make_uint3;
using emulator::make_uint4;
using emulator::make_ushort2;
using emulator::make_ushort4;
using emulator::short2;
using emulator::short4;
using emulator::uint2;
using emulator::uint3;
using emulator::uint4;
using emulator::ushort2;
using emulator::ushort4;

constexpr int warpSize = 32;

// Barriers and fences.

inline void __syncthreads(emulator::Loc loc = emulator::Loc::here()) {
  emulator::sync_threads(emulator::Vote::kNone, 0, loc);
}
inline int __syncthreads_or(int value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::sync_threads(emulator::Vote::kAny, value, loc);
}
inline int __syncthreads_and(int value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::sync_threads(emulator::Vote::kAll, value, loc);
}
inline int __syncthreads_count(int value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::sync_threads(emulator::Vote::kCount, value, loc);
}
inline void __syncwarp(unsigned mask = 0xffffffffU, emulator::Loc loc = emulator::Loc::here()) {
  emulator::sync_warp(mask, loc);
}
inline void __threadfence(emulator::Loc loc = emulator::Loc::here()) { emulator::thread_fence(loc); }
/// Orders nothing that __syncthreads and __syncwarp do not: between blocks it means nothing.
inline void __threadfence_block() {}
[[noreturn]] inline void __trap(emulator::Loc loc = emulator::Loc::here()) {
  emulator::fault("__trap was called", loc);
}

// Shuffles, of any type that is copied byte by byte.

namespace internal {

template <typename T>
T shuffle(unsigned mask, T value, int source, emulator::Loc loc) {
  static_assert(std::is_trivially_copyable_v<T>);
  T out = value;
  emulator::shuffle({.mask = mask, .in = &value, .out = &out, .bytes = sizeof(T), .source = source}, loc);
  return out;
}

// The first lane of this lane's part of the warp.
inline int first_lane(int width) { return emulator::lane_index() & ~(width - 1); }

}  // namespace internal

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulator::Loc loc = emulator::Loc::here()) {
  return internal::shuffle(mask, value, internal::first_lane(width) | (source & (width - 1)), loc);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, emulator::Loc loc = emulator::Loc::here()) {
  const int lane = emulator::lane_index(), source = lane - static_cast<int>(delta);
  return internal::shuffle(mask, value, source >= internal::first_lane(width) ? source : lane, loc);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, emulator::Loc loc = emulator::Loc::here()) {
  const int lane = emulator::lane_index(), source = lane + static_cast<int>(delta);
  return internal::shuffle(mask, value, source < internal::first_lane(width) + width ? source : lane, loc);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, emulator::Loc loc = emulator::Loc::here()) {
  const int lane = emulator::lane_index(), source = lane ^ lanes;
  return internal::shuffle(mask, value, source < internal::first_lane(width) + width ? source : lane, loc);
}

// Votes and reductions of a warp.

inline unsigned __ballot_sync(unsigned mask, int value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::ballot(mask, value, loc);
}
inline int __any_sync(unsigned mask, int value, emulator::Loc loc = emulator::Loc::here()) {
  return static_cast<int>(emulator::ballot(mask, value, loc) != 0);
}
inline int __all_sync(unsigned mask, int value, emulator::Loc loc = emulator::Loc::here()) {
  return static_cast<int>(emulator::ballot(mask, value, loc) == mask);
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::reduce(emulator::Reduction::kAdd, mask, value, loc);
}
inline int __reduce_add_sync(unsigned mask, int value, emulator::Loc loc = emulator::Loc::here()) {
  return static_cast<int>(emulator::reduce(emulator::Reduction::kAdd, mask, static_cast<unsigned>(value), loc));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::reduce(emulator::Reduction::kMin, mask, value, loc);
}
inline int __reduce_min_sync(unsigned mask, int value, emulator::Loc loc = emulator::Loc::here()) {
  return static_cast<int>(emulator::reduce(emulator::Reduction::kMinSigned, mask, static_cast<unsigned>(value), loc));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::reduce(emulator::Reduction::kMax, mask, value, loc);
}
inline int __reduce_max_sync(unsigned mask, int value, emulator::Loc loc = emulator::Loc::here()) {
  return static_cast<int>(emulator::reduce(emulator::Reduction::kMaxSigned, mask, static_cast<unsigned>(value), loc));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::reduce(emulator::Reduction::kAnd, mask, value, loc);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::reduce(emulator::Reduction::kOr, mask, value, loc);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::reduce(emulator::Reduction::kXor, mask, value, loc);
}

// Atomics: int, unsigned, unsigned long long; add and exchange also float, add also double.

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_add(address, value, loc);
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_min(address, value, loc);
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_max(address, value, loc);
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_or(address, value, loc);
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_and(address, value, loc);
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value, emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_exchange(address, value, loc);
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value,
            emulator::Loc loc = emulator::Loc::here()) {
  return emulator::atomic_compare_exchange(address, expected, value, loc);
}

// Loads and stores with a cache hint. They change speed only.

template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
void __stcs(T* address, T value) {
  *address = value;
}
template <typename T>
void __stcg(T* address, T value) {
  *address = value;
}

// Bits.

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }

// Arithmetic. Approximate functions are made of the instructions that nvcc makes them of.

inline float __expf(float x) { return emulator::approximate::ex2(x * 0x1.715476p+0F, false); }
inline float __exp10f(float x) { return emulator::approximate::ex2(x * 0x1.a934fp+1F, false); }
inline float __logf(float x) { return emulator::approximate::lg2(x, false) * 0x1.62e43p-1F; }
inline float __log2f(float x) { return emulator::approximate::lg2(x, false); }
inline float __powf(float x, float y) {
  return emulator::approximate::ex2(y * emulator::approximate::lg2(x, false), false);
}
inline float __sinf(float x) { return emulator::approximate::sin(x, false); }
inline float __cosf(float x) { return emulator::approximate::cos(x, false); }
inline float __fdividef(float x, float y) { return emulator::approximate::div(x, y, false); }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __saturatef(float x) { return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F; }  // NaN and -0 become 0
inline float rsqrtf(float x) { return emulator::approximate::rsqrt(x, false); }
inline double rsqrt(double x) { return emulator::approximate::rsqrt(x); }

namespace internal {

/// Of a number and a NaN the number, and -0 is less than 0: a host's fmin and fmax leave that open.
template <typename T>
constexpr T smaller(T a, T b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a < b || b != b ? a : b;
}
template <typename T>
constexpr T larger(T a, T b) {
  if (a == b) return std::signbit(a) ? b : a;
  return a > b || b != b ? a : b;
}

}  // namespace internal

// Alone a host has C's, of double: what is made of a float's would be double as well, other bits than a GPU's.
inline float fabs(float x) { return std::fabs(x); }
inline double fabs(double x) { return std::fabs(x); }

inline float fminf(float a, float b) { return internal::smaller(a, b); }
inline float fmaxf(float a, float b) { return internal::larger(a, b); }
inline double fmin(double a, double b) { return internal::smaller(a, b); }
inline double fmax(double a, double b) { return internal::larger(a, b); }

template <typename A, typename B>
constexpr auto min(A a, B b) {
  static_assert(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>);
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return internal::smaller(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
  }
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  static_assert(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>);
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return internal::larger(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
  }
}

}  // namespace ashlar::ASHLAR_DEV
