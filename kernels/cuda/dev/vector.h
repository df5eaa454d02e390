#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/base/bf16.h"
#include "core/tensor/view.h"
#include "kernels/cuda/dev/kernel.h"
#include "kernels/cuda/dev/ptx.h"

/// How kernels read and write rows of storage types: vectors of up to 16 bytes, conversions between storage and
/// arithmetic types, and rows of a matrix.
namespace ashlar::ASHLAR_DEV {

/// The arithmetic type for the given storage types: double if one of them is double, otherwise float.
template <typename... T>
using AccumulateOf = std::conditional_t<(std::is_same_v<T, double> || ...), double, float>;

/// Number of elements of a vector, such that a vector of the widest given type has 16 bytes. A vector of a narrower
/// type has the same number of elements in 8 or 4 bytes, so that the vectors of a warp are contiguous in every type.
template <typename... T>
inline constexpr int kWidth = 16 / static_cast<int>(std::max({sizeof(T)...}));

namespace internal {

// The word that one load or store instruction moves. It may alias every type.
template <int kBytes>
struct Word;
template <>
struct __attribute__((may_alias, aligned(16))) Word<16> {
  uint32_t x, y, z, w;
};
template <>
struct __attribute__((may_alias, aligned(8))) Word<8> {
  uint32_t x, y;
};
template <>
struct __attribute__((may_alias, aligned(4))) Word<4> {
  uint32_t x;
};
template <>
struct __attribute__((may_alias, aligned(2))) Word<2> {
  uint16_t x;
};
template <>
struct __attribute__((may_alias, aligned(1))) Word<1> {
  uint8_t x;
};
template <int kBytes>
struct Words {
  static constexpr int kCount = kBytes > 16 ? kBytes / 16 : 1;
  using Word = internal::Word<kBytes / kCount>;
  Word word[kCount];
};

}  // namespace internal

__device__ __forceinline__ float widen(BF16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ double widen(double v) { return v; }

/// A vector of W elements in registers.
template <typename T, int W>
struct alignas(std::min<size_t>(16, sizeof(T) * W)) Vec {
  T v[W];

  __device__ __forceinline__ T get(int i) const { return v[i]; }
  __device__ __forceinline__ void set(int i, T value) { v[i] = value; }
  __device__ __forceinline__ auto wide(int i) const { return widen(v[i]); }
};
/// Packs two bf16 elements into one register. With an array of BF16 the compiler would use one register per element.
template <int W>
requires(W % 2 == 0) struct alignas(std::min(16, 2 * W)) Vec<BF16, W> {
  uint32_t pair[W / 2];

  __device__ __forceinline__ BF16 get(int i) const {
    BF16 out;
    out.bits = static_cast<uint16_t>(pair[i / 2] >> (i % 2 * 16));
    return out;
  }
  /// Sets element i, which must be zero before the call.
  __device__ __forceinline__ void set(int i, BF16 value) { pair[i / 2] |= uint32_t{value.bits} << (i % 2 * 16); }
  __device__ __forceinline__ float wide(int i) const {
    return std::bit_cast<float>(i % 2 == 0 ? pair[i / 2] << 16 : pair[i / 2] & 0xffff0000U);
  }
};

namespace internal {

/// Reports an unaligned address on an emulated device. A GPU faults there by itself, but the host does not.
template <typename Word>
__device__ __forceinline__ void check_aligned(const void* p) {
#if !defined(__CUDACC__)
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Word) != 0) {
    emulator::fault("a vector at an address that is not a multiple of its size", emulator::Loc::here());
  }
#else
  static_cast<void>(p);
#endif
}

}  // namespace internal

/// Loads W elements from p, which is aligned to the size of the vector, or to 16 bytes if that is less.
template <int W, typename T>
__device__ __forceinline__ Vec<T, W> load(const T* p) {
  using Words = internal::Words<static_cast<int>(sizeof(T)) * W>;
  internal::check_aligned<typename Words::Word>(p);
  Words words;
  ASHLAR_UNROLL
  for (int i = 0; i < Words::kCount; ++i) words.word[i] = reinterpret_cast<const typename Words::Word*>(p)[i];
  return std::bit_cast<Vec<T, W>>(words);
}
/// Stores a vector to global memory, with the alignment that load() requires.
template <int W, typename T>
__device__ __forceinline__ void store(T* p, const Vec<T, W>& vec) {
  using Words = internal::Words<static_cast<int>(sizeof(T)) * W>;
  const Words words = std::bit_cast<Words>(vec);
  ASHLAR_UNROLL
  for (int i = 0; i < Words::kCount; ++i) store_global(reinterpret_cast<typename Words::Word*>(p) + i, words.word[i]);
}
template <int W, typename T>
__device__ __forceinline__ void store_shared(T* p, const Vec<T, W>& vec) {
  using Words = internal::Words<static_cast<int>(sizeof(T)) * W>;
  const Words words = std::bit_cast<Words>(vec);
  ASHLAR_UNROLL
  for (int i = 0; i < Words::kCount; ++i) reinterpret_cast<typename Words::Word*>(p)[i] = words.word[i];
}

/// Forces the compiler to keep a vector in its storage type. Otherwise the compiler moves the widening of
/// loop-invariant vectors out of the loop, which needs twice the registers.
template <typename T, int W>
__device__ __forceinline__ void keep_packed(Vec<T, W>& vec) {
#if defined(__CUDACC__)
  static_assert(sizeof(vec) == 16);
  auto word = std::bit_cast<internal::Word<16>>(vec);
  asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
  vec = std::bit_cast<Vec<T, W>>(word);
#else
  static_cast<void>(vec);
#endif
}

/// Loads the first `count` elements of a vector one by one and sets the others to zero. `count` may be negative or
/// above W.
template <int W, typename T>
__device__ __forceinline__ Vec<T, W> load_part(const T* p, int count) {
  Vec<T, W> vec{};
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) {
    if (i < count) vec.set(i, p[i]);
  }
  return vec;
}
template <int W, typename T>
__device__ __forceinline__ void store_part(T* p, const Vec<T, W>& vec, int count) {
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) {
    if (i < count) p[i] = vec.get(i);
  }
}

/// Loads the first `count` elements of a vector: with kVector by vector loads, otherwise one by one. With kVector,
/// count must be at least W or at most 0.
template <bool kVector, int W, typename T>
__device__ __forceinline__ Vec<T, W> load_row(const T* p, int count) {
  if constexpr (kVector) {
    return count > 0 ? load<W>(p) : Vec<T, W>{};
  } else {
    return load_part<W>(p, count);
  }
}
template <bool kVector, int W, typename T>
__device__ __forceinline__ void store_row(T* p, const Vec<T, W>& vec, int count) {
  if constexpr (kVector) {
    if (count > 0) store(p, vec);
  } else {
    store_part(p, vec, count);
  }
}

/// Like load_row and store_row, but chooses at run time: uses vector instructions if `vector` is true and count is at
/// least W.
template <int W, typename T>
__device__ __forceinline__ Vec<T, W> load_some(const T* p, int count, bool vector) {
  return vector && count >= W ? load<W>(p) : load_part<W>(p, count);
}
template <int W, typename T>
__device__ __forceinline__ void store_some(T* p, const Vec<T, W>& vec, int count, bool vector) {
  if (vector && count >= W) {
    store(p, vec);
  } else {
    store_part(p, vec, count);
  }
}

namespace internal {

__host__ __device__ __forceinline__ BF16 to_bf16(float value) {
#if defined(__CUDACC__)
  BF16 out;
  out.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return out;
#else
  return BF16(value);
#endif
}
/// Converts through an fp32 number rounded to odd, so that the result is rounded once and not twice.
__host__ __device__ __forceinline__ BF16 to_bf16(double value) {
  auto f = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(f);
  const double back = f;
  if (back != value && (bits & 0x7fffffffU) < 0x7f800000U && (bits & 1U) == 0) {
    f = std::bit_cast<float>((value > back) == (value > 0) ? bits + 1 : bits - 1);
  }
  return to_bf16(f);
}

}  // namespace internal

/// Rounds to the nearest number of type T. Kernels use it once per result, at the store.
template <typename T, typename A>
__host__ __device__ __forceinline__ T narrow(A value) {
  if constexpr (std::is_same_v<T, BF16>) {
    return internal::to_bf16(value);
  } else {
    return static_cast<T>(value);
  }
}
template <typename T, typename A, int W>
__device__ __forceinline__ Vec<T, W> narrow(const A (&values)[W]) {
  Vec<T, W> out{};
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<T, BF16> && std::is_same_v<A, float> && W % 2 == 0) {  // one instruction rounds two
    ASHLAR_UNROLL
    for (int i = 0; i < W; i += 2) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(values[i], values[i + 1]);
      out.pair[i / 2] = reinterpret_cast<const uint32_t&>(both);
    }
  } else
#endif
  {
    ASHLAR_UNROLL
    for (int i = 0; i < W; ++i) out.set(i, narrow<T>(values[i]));
  }
  return out;
}

template <typename A, typename T, int W>
__device__ __forceinline__ void widen(const Vec<T, W>& vec, A (&values)[W]) {
  ASHLAR_UNROLL
  for (int i = 0; i < W; ++i) values[i] = static_cast<A>(vec.wide(i));
}

/// A view in the form of a kernel argument: rows of T that are `stride` elements apart. Converts to false if the view
/// is absent.
template <typename T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  __device__ explicit operator bool() const { return data != nullptr; }
  __device__ T* operator[](int64_t n) const { return data + n * stride; }
};
template <typename T>
Rows<const T> rows_of(const ConstView& v) {
  return {static_cast<const T*>(v.data), v.stride};
}
template <typename T>
Rows<T> rows_of(const MutView& v) {
  return {static_cast<T*>(v.data), v.stride};
}

/// Returns the alignment of every row of a view in bytes: a power of 2, at most 16.
inline int row_alignment(const ConstView& v) {
  const auto stride = static_cast<uint64_t>(v.rows > 1 ? v.stride * size_of(v.dtype) : 0);
  return 1 << std::countr_zero(reinterpret_cast<uintptr_t>(v.data) | stride | 16U);
}
/// True if vectors of `width` elements are aligned in every row of a view. True for an absent view.
inline bool rows_aligned(const ConstView& v, int64_t width) {
  const int64_t bytes = std::min<int64_t>(16, width * size_of(v.dtype));
  return reinterpret_cast<uintptr_t>(v.data) % static_cast<uintptr_t>(bytes) == 0 &&
         (v.rows <= 1 || v.stride * size_of(v.dtype) % bytes == 0);
}
template <typename... Views>
bool rows_aligned_for(int64_t width, const Views&... views) {
  return (rows_aligned(views, width) && ...);
}

}  // namespace ashlar::ASHLAR_DEV
