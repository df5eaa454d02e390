#include "kernels/cpu/gemm_own.h"

#include <omp.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/error.h"
#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/parallel_for.h"

// Blocks of m x n of the result, k in slices. For each slice all threads pack the two operands into panels (in L2/L3,
// contiguous, zero-filled at the edges), meet, and then share the tiles of the block as a grid of threads. A panel of b
// stays in L1 while the tiles of a chunk of a, which stays in L2, pass over it.
// Source of the scheme: Goto & van de Geijn 2008, "Anatomy of High-Performance Matrix Multiplication", section 4.

namespace ashlar::cpu {
namespace {

constexpr int64_t kSliceK = 384;   // panel elements of k in a slice: a panel of b is about the size of L1
constexpr int64_t kBlockM = 1536;  // rows and columns of a block: packed operands stay in L3
constexpr int64_t kBlockN = 3072;
constexpr int64_t kChunkBytes = 256 << 10;    // of packed a per thread: half of a small L2
constexpr int64_t kFlopsPerThread = 200'000;  // below this a second thread costs more than it brings

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// How threads share a block of row tiles x column panels.
struct Grid {
  int64_t rows = 1;
  int64_t cols = 1;
};

Grid choose_grid(int64_t threads, int64_t row_tiles, int64_t col_panels) {
  Grid best;
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int64_t rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const int64_t cols = threads / rows;
    const int64_t cost = ceil_div(row_tiles, rows) * ceil_div(col_panels, cols);
    if (cost < best_cost) {
      best_cost = cost;
      best = {rows, cols};
    }
  }
  return best;
}

/// One packed product. Sizes in elements; `groups` counts panel elements along k.
template <typename Acc>
class PackedGemm {
 public:
  PackedGemm(const GemmArgs& args, const GemmKernels<Acc>& kernels, int threads, Allocator& workspace)
      : args_(args), kernels_(kernels), m_(args.m()), n_(args.n()), k_(args.k()) {
    const double flops = 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
    threads_ = static_cast<int>(std::clamp(flops / kFlopsPerThread, 1.0, static_cast<double>(threads)));
    panel_cols_ = 2 * kernels.lanes;
    const int64_t slice = kSliceK * kernels.k_group;
    num_slices_ = std::max<int64_t>(1, ceil_div(k_, slice));
    slice_k_ = round_up(ceil_div(std::max<int64_t>(k_, 1), num_slices_), 4 * kernels.k_group);
    num_slices_ = std::max<int64_t>(1, ceil_div(k_, slice_k_));
    block_m_ = std::min(kBlockM, m_);
    block_n_ = std::min(kBlockN, round_up(n_, kernels.lanes));
    result_is_bf16_ = args.c.dtype == DType::kBFloat16;

    const int64_t slice_groups = ceil_div(slice_k_, kernels.k_group);
    a_pack_.emplace(workspace, block_m_ * slice_groups * kernels.panel_elem_bytes);
    b_pack_.emplace(workspace, block_n_ * slice_groups * kernels.panel_elem_bytes);
    if (result_is_bf16_ && num_slices_ > 1) {
      sums_.emplace(workspace, block_m_ * block_n_ * static_cast<int64_t>(sizeof(Acc)));
    }
    if (args.bias) widen_bias(workspace);
  }

  void run() {
    if (threads_ == 1) {
      work(0, 1);
      return;
    }
#pragma omp parallel num_threads(threads_)
    work(omp_get_thread_num(), omp_get_num_threads());
  }

 private:
  struct Block {
    int64_t row0, rows, col0, cols;  // of the result
    int64_t row_tiles, col_panels;
    int64_t k0, k, groups;
    bool first, last;  // slice of k
  };

  void widen_bias(Allocator& workspace) {
    const int64_t padded = round_up(n_, panel_cols_);
    bias_.emplace(workspace, padded * static_cast<int64_t>(sizeof(Acc)));
    Acc* out = bias_->template as<Acc>();
    for (int64_t j = 0; j < padded; ++j) {
      if (j >= n_) {
        out[j] = 0;
      } else if (args_.bias.dtype == DType::kBFloat16) {
        out[j] = static_cast<Acc>(static_cast<float>(static_cast<const BF16*>(args_.bias.data)[j]));
      } else {
        out[j] = static_cast<const Acc*>(args_.bias.data)[j];
      }
    }
  }

  void work(int64_t thread, int64_t threads) {
    for (int64_t row0 = 0; row0 < m_; row0 += block_m_) {
      for (int64_t col0 = 0; col0 < n_; col0 += block_n_) {
        Block block{};
        block.row0 = row0;
        block.rows = std::min(block_m_, m_ - row0);
        block.col0 = col0;
        block.cols = std::min(block_n_, n_ - col0);
        block.row_tiles = ceil_div(block.rows, kernels_.tile_rows);
        block.col_panels = ceil_div(block.cols, panel_cols_);
        for (int64_t slice = 0; slice < num_slices_; ++slice) {
          block.k0 = slice * slice_k_;
          block.k = std::min(slice_k_, k_ - block.k0);
          block.groups = ceil_div(block.k, kernels_.k_group);
          block.first = slice == 0;
          block.last = slice == num_slices_ - 1;
          if (num_slices_ > 1 || col0 == 0) pack_a(block, thread, threads);
          pack_b(block, thread, threads);
          if (threads > 1) {
#pragma omp barrier
          }
          multiply(block, thread, threads);
          if (threads > 1) {
#pragma omp barrier
          }
        }
      }
    }
  }

  // Tiles differ by at most one row, so that no thin rest is left for the slow small tiles.
  Range tile_rows(const Block& block, int64_t tile) const { return part_of(block.rows, block.row_tiles, tile); }

  const char* element(const ConstView& view, int64_t row, int64_t col) const {
    return static_cast<const char*>(view.data) + (row * view.stride + col) * size_of(view.dtype);
  }

  void pack_a(const Block& block, int64_t thread, int64_t threads) {
    const Range mine = part_of(block.row_tiles, threads, thread);
    for (int64_t tile = mine.begin; tile < mine.end; ++tile) {
      const Range rows = tile_rows(block, tile);
      const int64_t i = block.row0 + rows.begin;
      kernels_.pack({.src = args_.transpose_a ? element(args_.a, block.k0, i) : element(args_.a, i, block.k0),
                     .stride = args_.a.stride,
                     .k_contiguous = !args_.transpose_a,
                     .width = rows.size(),
                     .padded_width = rows.size(),
                     .k = block.k,
                     .dst = a_panel(block, rows.begin)});
    }
  }

  void pack_b(const Block& block, int64_t thread, int64_t threads) {
    const Range mine = part_of(block.col_panels, threads, thread);
    for (int64_t panel = mine.begin; panel < mine.end; ++panel) {
      const int64_t j = panel * panel_cols_;
      const int64_t width = std::min(panel_cols_, block.cols - j);
      kernels_.pack({.src = args_.transpose_b ? element(args_.b, block.col0 + j, block.k0)
                                              : element(args_.b, block.k0, block.col0 + j),
                     .stride = args_.b.stride,
                     .k_contiguous = args_.transpose_b,
                     .width = width,
                     .padded_width = round_up(width, kernels_.lanes),
                     .k = block.k,
                     .dst = b_panel(block, j)});
    }
  }

  void* a_panel(const Block& block, int64_t row) const {
    return a_pack_->as<char>() + row * block.groups * kernels_.panel_elem_bytes;
  }
  void* b_panel(const Block& block, int64_t col) const {
    return b_pack_->as<char>() + col * block.groups * kernels_.panel_elem_bytes;
  }

  void multiply(const Block& block, int64_t thread, int64_t threads) {
    const Grid grid = choose_grid(threads, block.row_tiles, block.col_panels);
    const Range tiles = part_of(block.row_tiles, grid.rows, thread / grid.cols);
    const Range panels = part_of(block.col_panels, grid.cols, thread % grid.cols);
    const int64_t tile_bytes = kernels_.tile_rows * std::max<int64_t>(block.groups, 1) * kernels_.panel_elem_bytes;
    const int64_t chunk = std::max<int64_t>(1, kChunkBytes / tile_bytes);
    for (int64_t begin = tiles.begin; begin < tiles.end; begin += chunk) {
      const int64_t end = std::min(begin + chunk, tiles.end);
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        for (int64_t tile = begin; tile < end; ++tile)
          multiply_tile(block, tile_rows(block, tile), panel * panel_cols_);
      }
    }
  }

  void multiply_tile(const Block& block, Range rows, int64_t col) {
    const int64_t cols = std::min(panel_cols_, block.cols - col);
    const int64_t padded = round_up(cols, kernels_.lanes);
    const int vectors = static_cast<int>(padded / kernels_.lanes);
    const int64_t i = block.row0 + rows.begin;
    const int64_t j = block.col0 + col;
    TileArgs<Acc> tile{.a = a_panel(block, rows.begin), .b = b_panel(block, col), .groups = block.groups};
    if (block.first && bias_) tile.add = bias_->template as<Acc>() + j;

    alignas(64) Acc result[kMaxTileRows * kMaxTileCols];
    if (result_is_bf16_) {
      Acc* sums = sums_ ? sums_->template as<Acc>() + rows.begin * block_n_ + col : nullptr;
      if (!block.first) {
        tile.add = sums;
        tile.ld_add = block_n_;
      }
      tile.out = block.last ? result : sums;
      tile.ld_out = block.last ? kMaxTileCols : block_n_;
      kernels_.tile(static_cast<int>(rows.size()), vectors, tile);
      if (!block.last) return;
      BF16* c = static_cast<BF16*>(args_.c.data) + i * args_.c.stride + j;
      kernels_.store_bf16(result, kMaxTileCols, c, args_.c.stride, rows.size(), cols, args_.accumulate);
      return;
    }

    Acc* c = static_cast<Acc*>(args_.c.data) + i * args_.c.stride + j;
    const bool add_c = !block.first || args_.accumulate;
    if (cols == padded) {
      if (add_c) {
        tile.add = c;
        tile.ld_add = args_.c.stride;
      }
      tile.out = c;
      tile.ld_out = args_.c.stride;
      kernels_.tile(static_cast<int>(rows.size()), vectors, tile);
      return;
    }
    tile.out = result;
    tile.ld_out = kMaxTileCols;
    kernels_.tile(static_cast<int>(rows.size()), vectors, tile);
    for (int64_t r = 0; r < rows.size(); ++r) {
      for (int64_t x = 0; x < cols; ++x) {
        const Acc value = result[r * kMaxTileCols + x];
        Acc& to = c[r * args_.c.stride + x];
        to = add_c ? to + value : value;
      }
    }
  }

  const GemmArgs& args_;
  const GemmKernels<Acc> kernels_;
  const int64_t m_, n_, k_;
  int threads_ = 1;
  int64_t panel_cols_ = 0;
  int64_t num_slices_ = 1, slice_k_ = 0;
  int64_t block_m_ = 0, block_n_ = 0;
  bool result_is_bf16_ = false;
  std::optional<ScopedBlock> a_pack_, b_pack_, sums_, bias_;
};

}  // namespace

void gemm_own(const GemmArgs& args, Isa isa, int threads, Allocator& workspace) {
  if (args.m() == 0 || args.n() == 0) return;
  if (args.a.dtype == DType::kFloat64) {
    PackedGemm<double>(args, double_kernels(isa), threads, workspace).run();
  } else if (args.a.dtype == DType::kBFloat16 && isa == Isa::kAvx512Bf16) {
    PackedGemm<float>(args, bf16_dot_kernels(), threads, workspace).run();
  } else {
    PackedGemm<float>(args, float_kernels(isa, args.a.dtype), threads, workspace).run();
  }
}

}  // namespace ashlar::cpu
