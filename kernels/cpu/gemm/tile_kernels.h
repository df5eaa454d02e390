#pragma once

#include <cstdint>

#include "core/base/bf16.h"
#include "core/base/dtype.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// The widest tile of any instruction set: rows, and columns in elements.
inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileCols = 32;

/// A slice of an operand that is to be packed for the tile kernel, as consecutive panels. The first `wide_panels` of
/// them are `width` elements wide, the others `rest_width`. Element (i, p), with i along m or n from the first panel
/// and p along k, is src[i*stride + p] if k_contiguous, else src[p*stride + i]. Output, for the panel that starts at
/// element i: dst[i*groups + p*padded + x], x < its width, p < k, with padded = the width rounded up to a multiple of
/// `pad_to`, zeros for width <= x < padded, and groups = k in groups of `k_group`, a short last group padded with
/// zeros. Only the last panel may need padding.
struct PackArgs {
  const void* src = nullptr;
  int64_t stride = 0;
  bool k_contiguous = false;
  int64_t panels = 0;
  int64_t wide_panels = 0;
  int64_t width = 0;
  int64_t rest_width = 0;
  int64_t pad_to = 1;
  int64_t k = 0;
  void* dst = nullptr;
};

/// out[r][c] = add[r][c] + sum_p a[p][r] b[p][c] over `groups` panel elements, one tile of rows x vectors*lanes. Sums
/// run over p in ascending order for every element, for any tile size and location of a.
template <typename Acc>
struct TileArgs {
  const void* a = nullptr;  ///< panel of height rows; for tile_in_place the first row of the operand itself
  int64_t a_stride = 0;     ///< for tile_in_place: bytes from row to row
  const void* b = nullptr;  ///< panel of width vectors*lanes, aligned to a vector
  int64_t groups = 0;
  const Acc* add = nullptr;  ///< rows added to the product, may be null; ld_add 0 repeats one row
  int64_t ld_add = 0;
  Acc* out = nullptr;
  int64_t ld_out = 0;
  const void* prefetch =
      nullptr;  ///< data of a later tile: prefetched into L2, advancing prefetch_step bytes per group
  int64_t prefetch_step = 0;
};

/// Prefetches the result into L1, while the loop over k is long enough to hide the latency.
template <int kRows, int kVectors, typename Acc>
[[gnu::always_inline]] inline void prefetch_result(const TileArgs<Acc>& args, int64_t lanes) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) __builtin_prefetch(args.out + r * args.ld_out + v * lanes, 1, 3);
  }
}

/// The kernels of one instruction set for one storage dtype, used by the blocked loops of packed_gemm.cpp.
template <typename Acc>
struct GemmKernels {
  int tile_rows = 0;  ///< a tile is 1..tile_rows rows
  int lanes = 0;      ///< times 1..2 vectors of this many columns
  int k_group = 1;    ///< storage elements in a panel element
  int64_t panel_elem_bytes = 0;
  void (*pack)(const PackArgs&) = nullptr;
  void (*tile)(int rows, int vectors, const TileArgs<Acc>&) = nullptr;
  /// `tile` for rows of `a` contiguous along k, as stored; null if the storage type differs from the panel type.
  void (*tile_in_place)(int rows, int vectors, const TileArgs<Acc>&) = nullptr;
  /// c[r][j] = round(from[r][j] [+ c[r][j]]) for a block of rows x cols; null when Acc is the only output.
  void (*store_bf16)(const Acc* from, int64_t ld_from, BF16* c, int64_t ld_c, int64_t rows, int64_t cols,
                     bool accumulate) = nullptr;
};

/// fp32 panels, from fp32 or bf16 storage (widened while packed).
GemmKernels<float> float_kernels(Isa isa, DType storage);
GemmKernels<double> double_kernels(Isa isa);
/// Kernels with panels of bf16 pairs. Their tile must be replaced by one that supports pairs.
GemmKernels<float> bf16_pair_kernels();
/// bf16_pair_kernels with vdpbf16ps; only if the processor supports it.
GemmKernels<float> bf16_dot_kernels();

}  // namespace ashlar::cpu
