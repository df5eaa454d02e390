// The bf16 dot-product tile in intrinsics, since Highway 1.0.3 cannot emit vdpbf16ps. The loop is the same as in
// tile_kernels.cpp, with a pair of bf16 numbers in place of one fp32 number. The instruction flushes denormal inputs
// and sums to zero.

#include <immintrin.h>

#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/gemm/tile_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace ashlar::cpu {
namespace {

constexpr int kTileRows = 12;
constexpr int64_t kLanes = 16;

// Loads a pair of bf16 numbers. If `a` is read in place, a pair may be at any even address.
int load_pair(const char* at) {
  int pair = 0;
  std::memcpy(&pair, at, sizeof(pair));
  return pair;
}

template <int kRows, int kVectors, bool kInPlace>
void tile(const TileArgs<float>& args) {
  constexpr int kBases = kInPlace ? (kRows + 2) / 3 : 1;
  constexpr int kPerBase = kInPlace ? 3 : kRows;
  constexpr int64_t kPair = sizeof(uint32_t);
  const int64_t a_row = kInPlace ? args.a_stride : kPair;
  const int64_t a_step = kInPlace ? kPair : kRows * kPair;
  const char* __restrict a[kBases];
  a[0] = static_cast<const char*>(args.a);
#pragma GCC unroll 16
  for (int i = 1; i < kBases; ++i) a[i] = a[i - 1] + kPerBase * a_row;
  const uint32_t* __restrict b = static_cast<const uint32_t*>(args.b);
  const char* prefetch = static_cast<const char*>(args.prefetch);
  prefetch_result<kRows, kVectors>(args, kLanes);
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (int64_t p = 0; p < args.groups; ++p) {
    __m512i bv[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) bv[v] = _mm512_load_si512(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512i av = _mm512_set1_epi32(load_pair(a[r / kPerBase] + r % kPerBase * a_row));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)av, (__m512bh)bv[v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kBases; ++i) a[i] += a_step;
    b += kVectors * kLanes;
    __builtin_prefetch(prefetch, 0, 2);
    prefetch += args.prefetch_step;
  }
  if (const float* add = args.add; add != nullptr) {
    const int64_t ld_add = args.ld_add;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r, add += ld_add) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_add_ps(sum[r][v], _mm512_loadu_ps(add + v * kLanes));
    }
  }
  float* out = args.out;
  const int64_t ld_out = args.ld_out;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r, out += ld_out) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(out + v * kLanes, sum[r][v]);
  }
}

template <bool kInPlace>
void run_tile(int rows, int vectors, const TileArgs<float>& args) {
  using Fn = void (*)(const TileArgs<float>&);
  static constexpr auto kTable = []<size_t... kR>(std::index_sequence<kR...>) {
    return std::array<std::array<Fn, 2>, sizeof...(kR)>{std::array<Fn, 2>{
        &tile<static_cast<int>(kR) + 1, 1, kInPlace>, &tile<static_cast<int>(kR) + 1, 2, kInPlace>}...};
  }
  (std::make_index_sequence<kTileRows>());
  kTable[static_cast<size_t>(rows - 1)][static_cast<size_t>(vectors - 1)](args);
}

}  // namespace

GemmKernels<float> bf16_dot_kernels() {
  GemmKernels<float> kernels = bf16_pair_kernels();
  kernels.tile_rows = kTileRows;
  kernels.tile = &run_tile<false>;
  kernels.tile_in_place = &run_tile<true>;
  return kernels;
}

}  // namespace ashlar::cpu

#pragma GCC pop_options
