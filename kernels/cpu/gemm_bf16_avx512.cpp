// The bf16 dot-product tile in intrinsics: Highway 1.0.3 cannot emit vdpbf16ps. Same loop as gemm_kernels.cpp with a
// pair of bf16 where that has an fp32. The instruction flushes denormal inputs and sums to zero.

#include <immintrin.h>

#include <array>
#include <utility>

#include "kernels/cpu/gemm_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

namespace ashlar::cpu {
namespace {

constexpr int kTileRows = 12;
constexpr int64_t kLanes = 16;

template <int kRows, int kVectors>
void tile(const TileArgs<float>& args) {
  const uint32_t* __restrict a = static_cast<const uint32_t*>(args.a);
  const uint32_t* __restrict b = static_cast<const uint32_t*>(args.b);
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
      const __m512i av = _mm512_set1_epi32(static_cast<int>(a[r]));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)av, (__m512bh)bv[v]);
      }
    }
    a += kRows;
    b += kVectors * kLanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      __m512 value = sum[r][v];
      if (args.add != nullptr) value = _mm512_add_ps(value, _mm512_loadu_ps(args.add + r * args.ld_add + v * kLanes));
      _mm512_storeu_ps(args.out + r * args.ld_out + v * kLanes, value);
    }
  }
}

void run_tile(int rows, int vectors, const TileArgs<float>& args) {
  using Fn = void (*)(const TileArgs<float>&);
  static constexpr auto kTable = []<size_t... kR>(std::index_sequence<kR...>) {
    return std::array<std::array<Fn, 2>, sizeof...(kR)>{
        std::array<Fn, 2>{&tile<static_cast<int>(kR) + 1, 1>, &tile<static_cast<int>(kR) + 1, 2>}...};
  }
  (std::make_index_sequence<kTileRows>());
  kTable[static_cast<size_t>(rows - 1)][static_cast<size_t>(vectors - 1)](args);
}

}  // namespace

GemmKernels<float> bf16_dot_kernels() {
  GemmKernels<float> kernels = bf16_pair_kernels();
  kernels.tile_rows = kTileRows;
  kernels.tile = &run_tile;
  return kernels;
}

}  // namespace ashlar::cpu

#pragma GCC pop_options
