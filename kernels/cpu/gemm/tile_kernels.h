#pragma once

#include <cstdint>

#include "core/base/bf16.h"
#include "core/base/dtype.h"
#include "kernels/cpu/cpu_info.h"

namespace ashlar::cpu {

/// Upper bounds for the rows and columns of a tile, for all instruction sets.
inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileCols = 32;

/// A slice of an operand that is packed into consecutive panels for the tile kernel. The first `wide_panels` panels
/// have `width` elements along m or n, the others have `rest_width`.
/// - Source: element (i, p), where i is the index along m or n and p the index along k, is src[i*stride + p] if
///   k_contiguous is true, otherwise src[p*stride + i].
/// - Result: panel elements, each with k_group adjacent elements along k (GemmKernels::k_group). In the panel that
///   begins at index i, element x of group p is dst[i*groups + p*padded + x]. `groups` is the number of groups along k;
///   zeros complete the last group. `padded` is the panel's width rounded up to a multiple of `pad_to`; elements x from
///   the width on are zero. Only the last panel may need padding.
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

/// One tile: out[r][c] = add[r][c] + the sum over p < groups of a[p][r] b[p][c], for `rows` rows and vectors * lanes
/// columns. Every sum runs over p in ascending order, for any tile size and whether `a` is packed or read in place.
template <typename Acc>
struct TileArgs {
  const void* a = nullptr;  ///< panel of `rows` rows; for tile_in_place the tile's first row in the unpacked operand
  int64_t a_stride = 0;     ///< for tile_in_place: row stride in bytes
  const void* b = nullptr;  ///< panel of vectors * lanes columns, aligned to a vector
  int64_t groups = 0;
  const Acc* add = nullptr;  ///< rows that are added to the product, or null; ld_add = 0 repeats one row
  int64_t ld_add = 0;
  Acc* out = nullptr;
  int64_t ld_out = 0;
  const void* prefetch =
      nullptr;  ///< data of a later tile: prefetched into L2, advancing prefetch_step bytes per group
  int64_t prefetch_step = 0;
};

/// Prefetches the rows of the result into L1. The loop over k that follows is long enough to hide the latency.
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
  int tile_rows = 0;  ///< a tile has 1 to tile_rows rows
  int lanes = 0;      ///< number of columns of a vector; a tile has 1 or 2 vectors of columns
  int k_group = 1;    ///< number of storage elements along k in a panel element
  int64_t panel_elem_bytes = 0;
  void (*pack)(const PackArgs&) = nullptr;
  void (*tile)(int rows, int vectors, const TileArgs<Acc>&) = nullptr;
  /// Like `tile`, but reads `a` in place; its rows are contiguous along k. Null if the storage type differs from the
  /// panel type.
  void (*tile_in_place)(int rows, int vectors, const TileArgs<Acc>&) = nullptr;
  /// c[r][j] = round(from[r][j] [+ c[r][j]]) for a block of rows x cols; null if the result always has type Acc.
  void (*store_bf16)(const Acc* from, int64_t ld_from, BF16* c, int64_t ld_c, int64_t rows, int64_t cols,
                     bool accumulate) = nullptr;
};

/// Kernels with fp32 panels, for fp32 storage or for bf16 storage, which is widened while it is packed.
GemmKernels<float> float_kernels(Isa isa, DType storage);
GemmKernels<double> double_kernels(Isa isa);
/// Kernels with panels of bf16 pairs. The caller must replace `tile` by a function that supports pairs.
GemmKernels<float> bf16_pair_kernels();
/// Kernels with panels of bf16 pairs and tiles that use vdpbf16ps. Only for processors that support this instruction.
GemmKernels<float> bf16_dot_kernels();

}  // namespace ashlar::cpu
