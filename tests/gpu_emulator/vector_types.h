#pragma once

#include <cstdint>

/// The built-in vector types of CUDA: same members, sizes and alignments. A misaligned access through one of them is
/// as wrong here as on a GPU.
namespace ashlar::emulator {

struct uint3 {
  unsigned x, y, z;
};

/// Extents of a grid or a block.
struct dim3 {
  unsigned x, y, z;

  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}  // NOLINT: as in CUDA
  constexpr int64_t count() const { return int64_t{x} * y * z; }
};

/// Where the n-th thread of a block, or block of a grid, stands in it.
constexpr uint3 index_in(const dim3& extent, int64_t n) {
  return {static_cast<unsigned>(n % extent.x), static_cast<unsigned>(n / extent.x % extent.y),
          static_cast<unsigned>(n / (int64_t{extent.x} * extent.y))};
}

#define ASHLAR_VECTOR_TYPE(T, name)                                  \
  struct alignas(2 * sizeof(T)) name##2 {                            \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 {  \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

ASHLAR_VECTOR_TYPE(float, float)
ASHLAR_VECTOR_TYPE(int, int)
ASHLAR_VECTOR_TYPE(int16_t, short)
ASHLAR_VECTOR_TYPE(uint16_t, ushort)
ASHLAR_VECTOR_TYPE(double, double)
#undef ASHLAR_VECTOR_TYPE

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) longlong2 {
  long long x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

}  // namespace ashlar::emulator
