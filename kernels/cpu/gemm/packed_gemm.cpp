#include "kernels/cpu/gemm/packed_gemm.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/cpu/arena_allocator.h"
#include "kernels/cpu/gemm/tile_kernels.h"
#include "kernels/cpu/parallel_for.h"

// The result [m, n] is processed in blocks, k is divided into slices, and the slices are grouped into rounds. In a
// round all threads pack both operands into panels (contiguous, zero-padded at the edges), wait at a barrier, and then
// multiply the tiles of the block, which are divided among a grid of threads. The threads of a grid row pack the panels
// of `a` that they multiply, the threads of a grid column the panels of `b`. If `a` is multiplied by few panels of `b`,
// `a` is not packed but read in place, with the same sums in the same order. A chunk of `a` stays in L2 and a panel of
// `b` in L1 while the tiles of the chunk are multiplied by the panel. Source of the scheme: Goto & van de Geijn 2008,
// "Anatomy of High-Performance Matrix Multiplication", section 4.
//
// Of a list of products, all threads compute those together that are large beside the rest, one after another. The
// others, and parts of their columns, are items that threads take until none is left, large ones first; one thread
// computes an item, without barriers.

namespace ashlar::cpu {
namespace {

constexpr int64_t kSliceK = 384;   // panel elements along k in a slice, such that a panel of `b` about fills L1
constexpr int64_t kBlockM = 1536;  // rows of a block (kBlockN: columns), such that packed operands stay in L3
constexpr int64_t kBlockN = 3072;
constexpr int64_t kChunkBytes = 256 << 10;    // size of a chunk of packed `a`: half of a small L2
constexpr int64_t kRoundBytes = 2 << 20;      // size of the operands that are packed between two barriers
constexpr int64_t kFlopsPerThread = 200'000;  // below this a second thread costs more than it saves

// With few rows, of which all of packed `a` takes at most kFewRowsBytes, panels of `b` are packed one at a time. Each
// thread then needs several panels, so that all have about the same number.
constexpr int64_t kFewRows = 128;
constexpr int64_t kFewRowsBytes = 512 << 10;
constexpr int64_t kFewRowsPanels = 8;
constexpr int64_t kShortSlice = 64;  // groups of a slice that is multiplied along the rows of the result
constexpr int64_t kLineBytes = 64;

// Products of a list. The barriers of a product cost little from kTeamFlops per thread on. An item has at least
// kItemCols columns, since each item of a product packs all of `a`.
constexpr double kTeamFlops = 20e6;
constexpr int64_t kItemsPerThread = 8;
constexpr int64_t kItemCols = 256;

// If `b` has more panels than kInPlacePanels, packing `a` is faster than reading `a` in place. If `a` is read in place,
// at most kRowsInOneSet rows of a tile may map to the same sets of L1 (64 sets of 64 bytes); more rows would evict each
// other.
constexpr int64_t kInPlacePanels = 32;
constexpr int64_t kRowsInOneSet = 6;
constexpr int64_t kSetPeriod = 4096;

constexpr int64_t kScratchAlignment = 256;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

double flops_of(const GemmArgs& args) {
  return 2.0 * static_cast<double>(args.m()) * static_cast<double>(args.n()) * static_cast<double>(args.k());
}

/// A grid of threads over which the row tiles and column panels of a block are divided.
struct Grid {
  int64_t rows = 1;
  int64_t cols = 1;
};

/// Returns the grid with the least work of the busiest thread and, among equals, the least packed data read by a
/// thread.
Grid choose_grid(int64_t threads, int64_t rows, int64_t vectors, int64_t lanes) {
  Grid best;
  std::pair<int64_t, int64_t> best_cost{std::numeric_limits<int64_t>::max(), 0};
  for (int64_t r = 1; r <= threads; ++r) {
    if (threads % r != 0) continue;
    const int64_t row_share = ceil_div(rows, r);
    const int64_t vector_share = ceil_div(vectors, threads / r);
    const std::pair cost{row_share * vector_share, row_share + vector_share * lanes};
    if (cost >= best_cost) continue;
    best_cost = cost;
    best = {r, threads / r};
  }
  return best;
}

/// One packed product. Sizes are in elements; `groups` is a number of panel elements along k.
template <typename Acc>
class PackedGemm {
 public:
  /// Plans a product for at most `threads` threads of a region of `team`.
  PackedGemm(const GemmArgs& args, const GemmKernels<Acc>& kernels, Threads& team, int threads)
      : args_(args), kernels_(kernels), team_(team), m_(args.m()), n_(args.n()), k_(args.k()) {
    threads_ = static_cast<int>(std::clamp(flops_of(args) / kFlopsPerThread, 1.0, static_cast<double>(threads)));
    panel_cols_ = 2 * kernels.lanes;
    const int64_t slice = kSliceK * kernels.k_group;
    num_slices_ = std::max<int64_t>(1, ceil_div(k_, slice));
    slice_k_ = round_up(ceil_div(std::max<int64_t>(k_, 1), num_slices_), 4 * kernels.k_group);
    num_slices_ = std::max<int64_t>(1, ceil_div(k_, slice_k_));
    block_m_ = std::min(kBlockM, m_);
    block_n_ = std::min(kBlockN, round_up(n_, kernels.lanes));
    result_is_bf16_ = args.c.dtype == DType::kBFloat16;

    in_place_ = a_serves_in_place();
    padded_m_ = in_place_ ? 0 : round_up(block_m_, kMaxTileCols);  // keeps the panels of `b` aligned
    group_bytes_ = ceil_div(slice_k_, kernels.k_group) * kernels.panel_elem_bytes;
    few_rows_ = has_few_rows();
    if (few_rows_) {
      block_n_ = round_up(n_, kernels.lanes);
      pack_bytes_ = (num_slices_ * padded_m_ + threads_ * panel_cols_) * group_bytes_;
    } else {
      const int64_t slice_bytes = (padded_m_ + block_n_) * group_bytes_;
      round_slices_ = std::clamp<int64_t>(kRoundBytes / slice_bytes, 1, num_slices_);
      pack_bytes_ = round_slices_ * slice_bytes;
    }
    pack_bytes_ = round_up(pack_bytes_, kScratchAlignment);
    if (result_is_bf16_ && num_slices_ > 1) {
      sums_bytes_ = round_up(block_m_ * block_n_ * static_cast<int64_t>(sizeof(Acc)), kScratchAlignment);
    }
    if (args.bias) bias_bytes_ = round_up(n_, panel_cols_) * static_cast<int64_t>(sizeof(Acc));
  }

  int threads() const { return threads_; }
  int64_t scratch_bytes() const { return pack_bytes_ + sums_bytes_ + bias_bytes_; }

  /// Gives the product its scratch memory, aligned to kScratchAlignment. One thread calls it, before `work`.
  void prepare(char* scratch) {
    pack_ = scratch;
    if (sums_bytes_ > 0) sums_ = reinterpret_cast<Acc*>(scratch + pack_bytes_);
    if (bias_bytes_ > 0) widen_bias(reinterpret_cast<Acc*>(scratch + pack_bytes_ + sums_bytes_));
  }

  /// Computes the part of one thread. All `threads` threads of a region call it; `threads` is at most threads().
  void work(int thread, int threads) {
    if (few_rows_) {
      work_on_few_rows(thread, threads);
      return;
    }
    for (int64_t row0 = 0; row0 < m_; row0 += block_m_) {
      for (int64_t col0 = 0; col0 < n_; col0 += block_n_) {
        const Block block{row0, std::min(block_m_, m_ - row0), col0, std::min(block_n_, n_ - col0)};
        const Share share = share_of(block, thread, threads);
        for (int64_t begin = 0; begin < num_slices_; begin += round_slices_) {
          const int64_t end = std::min(begin + round_slices_, num_slices_);
          const bool very_first = row0 == 0 && col0 == 0 && begin == 0;
          if (threads > 1 && !very_first) team_.barrier(thread);  // the panels of the previous round are no longer read
          for (int64_t s = begin; s < end; ++s) {
            const Slice slice = slice_at(s, begin);
            if (!in_place_ && (round_slices_ < num_slices_ || col0 == 0)) pack_a(block, slice, share);
            pack_b(block, slice, share);
          }
          if (threads > 1) team_.barrier(thread);  // the panels of this round are complete
          for (int64_t s = begin; s < end; ++s) multiply(block, slice_at(s, begin), share);
        }
      }
    }
  }

 private:
  struct Block {
    int64_t row0, rows, col0, cols;  // first row, number of rows, first column, number of columns in the result
  };
  struct Slice {
    int64_t k0, k, groups;
    bool first, last;
    char* a;  // panels of `a`; row x begins x * groups panel elements after `a`
    char* b;  // panels of `b`; column first_col + x begins x * groups panel elements after `b`
    int64_t first_col;
  };
  /// A tile within the block, and its prefetches for later tiles (see TileArgs).
  struct Place {
    Range rows, cols;
    const char* prefetch = nullptr;
    int64_t prefetch_step = 0;
  };
  /// The part of a block that one thread multiplies. The rows are packed by row_packers threads, of which this thread
  /// has index row_packer; the same holds for columns.
  struct Share {
    Range rows, cols;  // relative to the block
    int64_t row_packers, row_packer, col_packers, col_packer;
  };

  // True if `a` is used without packing: its rows are contiguous along k, and `b` has too few panels to amortize the
  // packing.
  bool a_serves_in_place() const {
    if (kernels_.tile_in_place == nullptr || args_.transpose_a || k_ % kernels_.k_group != 0) return false;
    const int64_t stride = args_.a.stride * size_of(args_.a.dtype);
    const int64_t rows = std::min<int64_t>(m_, kernels_.tile_rows);
    return ceil_div(n_, panel_cols_) <= kInPlacePanels &&
           rows * std::gcd(stride, kSetPeriod) <= kRowsInOneSet * kSetPeriod;
  }

  bool has_few_rows() const {
    if (m_ <= kernels_.tile_rows) return true;
    return m_ <= kFewRows && m_ * num_slices_ * group_bytes_ <= kFewRowsBytes &&
           (threads_ == 1 || ceil_div(n_, panel_cols_) >= kFewRowsPanels * threads_);
  }

  void widen_bias(Acc* out) {
    bias_ = out;
    const int64_t padded = round_up(n_, panel_cols_);
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

  // For few rows (token generation, small groups) each panel of `b` is used by few tiles. So a thread packs a panel
  // into a buffer that stays in its L1 or L2, and multiplies it immediately, while it prefetches the source of the next
  // panel. The time is at least the time to read `b` from memory. The sums have the same bits as in `work`.
  void work_on_few_rows(int thread, int threads) {
    const Block block{0, m_, 0, n_};
    char* a = pack_;
    char* b = a + (num_slices_ * padded_m_ + thread * panel_cols_) * group_bytes_;
    const Share whole{
        .rows = {0, m_}, .cols = {0, n_}, .row_packers = 1, .row_packer = 0, .col_packers = 1, .col_packer = 0};
    const auto slice_of = [&](int64_t index) {
      Slice slice = slice_at(index);
      slice.a = a + index * padded_m_ * group_bytes_;
      slice.b = b;
      return slice;
    };
    if (!in_place_) {
      for (int64_t s = thread; s < num_slices_; s += threads) pack_a(block, slice_of(s), whole);
      if (threads > 1) team_.barrier(thread);
    }
    const Range mine = part_of(num_panels(whole), threads, thread);
    const int64_t tiles = num_tiles(whole);
    for (int64_t panel = mine.begin; panel < mine.end; ++panel) {
      const Range cols = panel_cols(whole, panel);
      for (int64_t s = 0; s < num_slices_; ++s) {
        Slice slice = slice_of(s);
        pack_columns(block, slice, cols, b);
        slice.first_col = cols.begin;
        for (int64_t tile = 0; tile < tiles; ++tile) {
          Place place{.rows = tile_rows(whole, tile), .cols = cols, .prefetch = b};
          if (panel + 1 < mine.end) prefetch_source(slice, cols.end, tile, tiles, place);
          multiply_tile(block, slice, place);
        }
      }
    }
  }

  // Lets one of the `tiles` tiles of a panel and slice prefetch its part of the source of the panel that begins at
  // column `col`.
  void prefetch_source(const Slice& slice, int64_t col, int64_t tile, int64_t tiles, Place& place) const {
    const int64_t row_bytes = args_.b.stride * size_of(args_.b.dtype), k_group = kernels_.k_group;
    if (args_.transpose_b) {  // whole rows of the source, which the tiles of all slices prefetch one after another
      const int64_t steps = std::max<int64_t>(1, tiles * ceil_div(k_, k_group));
      place.prefetch_step = std::min(kLineBytes, ceil_div(panel_cols_ * row_bytes, steps));
      place.prefetch =
          element(args_.b, col, 0) + place.prefetch_step * (tiles * (slice.k0 / k_group) + tile * slice.groups);
      return;
    }
    // Some columns of the slice's rows: each tile prefetches one line of each row or of each second row.
    const int64_t lines = std::max<int64_t>(1, panel_cols_ * size_of(args_.b.dtype) / kLineBytes);
    if (tile >= lines * k_group) return;
    place.prefetch_step = k_group * row_bytes;
    place.prefetch = element(args_.b, slice.k0 + tile / lines, col) + tile % lines * kLineBytes;
  }

  Slice slice_at(int64_t index) const {
    Slice slice{};
    slice.k0 = index * slice_k_;
    slice.k = std::min(slice_k_, k_ - slice.k0);
    slice.groups = ceil_div(slice.k, kernels_.k_group);
    slice.first = index == 0;
    slice.last = index == num_slices_ - 1;
    return slice;
  }
  Slice slice_at(int64_t index, int64_t round_begin) const {
    Slice slice = slice_at(index);
    slice.a = pack_ + (index - round_begin) * (padded_m_ + block_n_) * group_bytes_;
    slice.b = slice.a + padded_m_ * group_bytes_;
    return slice;
  }

  Share share_of(const Block& block, int64_t thread, int64_t threads) const {
    const int64_t vectors = ceil_div(block.cols, kernels_.lanes);
    // All blocks have the same grid, so that the packed tiles of `a` stay valid from one block of columns to the
    // next.
    const Grid grid = choose_grid(threads, block_m_, block_n_ / kernels_.lanes, kernels_.lanes);
    const int64_t grid_row = thread / grid.cols;
    const int64_t grid_col = thread % grid.cols;
    const Range mine = part_of(vectors, grid.cols, grid_col);
    return {.rows = part_of(block.rows, grid.rows, grid_row),
            .cols = {mine.begin * kernels_.lanes, std::min(mine.end * kernels_.lanes, block.cols)},
            .row_packers = grid.cols,
            .row_packer = grid_col,
            .col_packers = grid.rows,
            .col_packer = grid_row};
  }

  // The heights of tiles differ by at most one row, so that there is no thin last tile, which would be slow.
  int64_t num_tiles(const Share& share) const { return ceil_div(share.rows.size(), kernels_.tile_rows); }
  Range tile_rows(const Share& share, int64_t tile) const {
    const Range rows = part_of(share.rows.size(), num_tiles(share), tile);
    return {share.rows.begin + rows.begin, share.rows.begin + rows.end};
  }
  int64_t num_panels(const Share& share) const { return ceil_div(share.cols.size(), panel_cols_); }
  Range panel_cols(const Share& share, int64_t panel) const {
    const int64_t begin = share.cols.begin + panel * panel_cols_;
    return {begin, std::min(begin + panel_cols_, share.cols.end)};
  }

  const char* element(const ConstView& view, int64_t row, int64_t col) const {
    return static_cast<const char*>(view.data) + (row * view.stride + col) * size_of(view.dtype);
  }

  void pack_a(const Block& block, const Slice& slice, const Share& share) {
    const int64_t tiles = num_tiles(share);
    const Range mine = part_of(tiles, share.row_packers, share.row_packer);
    if (mine.size() <= 0) return;
    const int64_t begin = tile_rows(share, mine.begin).begin;
    const int64_t i = block.row0 + begin;
    kernels_.pack({.src = args_.transpose_a ? element(args_.a, slice.k0, i) : element(args_.a, i, slice.k0),
                   .stride = args_.a.stride,
                   .k_contiguous = !args_.transpose_a,
                   .panels = mine.size(),
                   .wide_panels = std::clamp<int64_t>(share.rows.size() % tiles - mine.begin, 0, mine.size()),
                   .width = share.rows.size() / tiles + 1,
                   .rest_width = share.rows.size() / tiles,
                   .pad_to = 1,
                   .k = slice.k,
                   .dst = panel_at(slice.a, slice, begin)});
  }

  void pack_b(const Block& block, const Slice& slice, const Share& share) {
    const Range mine = part_of(num_panels(share), share.col_packers, share.col_packer);
    if (mine.size() <= 0) return;
    const int64_t begin = panel_cols(share, mine.begin).begin;
    const int64_t end = panel_cols(share, mine.end - 1).end;
    pack_columns(block, slice, {begin, end}, panel_at(slice.b, slice, begin));
  }

  void pack_columns(const Block& block, const Slice& slice, Range cols, void* dst) {
    const int64_t j = block.col0 + cols.begin;
    kernels_.pack({.src = args_.transpose_b ? element(args_.b, j, slice.k0) : element(args_.b, slice.k0, j),
                   .stride = args_.b.stride,
                   .k_contiguous = args_.transpose_b,
                   .panels = ceil_div(cols.size(), panel_cols_),
                   .wide_panels = cols.size() / panel_cols_,
                   .width = panel_cols_,
                   .rest_width = cols.size() % panel_cols_,
                   .pad_to = kernels_.lanes,
                   .k = slice.k,
                   .dst = dst});
  }

  int64_t panel_bytes(const Slice& slice, int64_t count) const {
    return count * slice.groups * kernels_.panel_elem_bytes;
  }
  char* panel_at(char* panels, const Slice& slice, int64_t first) const { return panels + panel_bytes(slice, first); }

  void multiply(const Block& block, const Slice& slice, const Share& share) {
    const int64_t tiles = num_tiles(share);
    const int64_t panels = num_panels(share);
    const int64_t tile_bytes = kernels_.tile_rows * std::max<int64_t>(slice.groups, 1) * kernels_.panel_elem_bytes;
    // If k is short, all panels of `b` stay in L2. Then one tile of `a` after another is multiplied by all of them, so
    // that the result, which is most of the traffic, is read and written along its rows.
    const bool short_slice = slice.groups <= kShortSlice && panel_bytes(slice, share.cols.size()) <= kChunkBytes;
    const int64_t chunk = short_slice ? 1 : std::max<int64_t>(1, kChunkBytes / tile_bytes);
    for (int64_t begin = 0; begin < tiles; begin += chunk) {
      const int64_t end = std::min(begin + chunk, tiles);
      for (int64_t panel = 0; panel < panels; ++panel) {
        const Range cols = panel_cols(share, panel);
        // Every tile prefetches its part of the next panel of `b` into L2.
        const bool more = panel + 1 < panels || end < tiles;
        const Range next = more ? panel_cols(share, (panel + 1) % panels) : cols;
        const int64_t step = more ? ceil_div(panel_cols_ * kernels_.panel_elem_bytes, end - begin) : 0;
        const char* prefetch = panel_at(slice.b, slice, next.begin - slice.first_col);
        for (int64_t tile = begin; tile < end; ++tile, prefetch += step * slice.groups) {
          multiply_tile(block, slice,
                        {.rows = tile_rows(share, tile), .cols = cols, .prefetch = prefetch, .prefetch_step = step});
        }
      }
    }
  }

  void run_tile(int rows, int vectors, const TileArgs<Acc>& tile) const {
    (in_place_ ? kernels_.tile_in_place : kernels_.tile)(rows, vectors, tile);
  }

  void multiply_tile(const Block& block, const Slice& slice, const Place& place) {
    const auto& [rows, columns, prefetch, prefetch_step] = place;
    const int64_t cols = columns.size();
    const int64_t padded = round_up(cols, kernels_.lanes);
    const int vectors = static_cast<int>(padded / kernels_.lanes);
    const int64_t i = block.row0 + rows.begin;
    const int64_t j = block.col0 + columns.begin;
    TileArgs<Acc> tile{.a = in_place_ ? element(args_.a, i, slice.k0) : panel_at(slice.a, slice, rows.begin),
                       .a_stride = args_.a.stride * size_of(args_.a.dtype),
                       .b = panel_at(slice.b, slice, columns.begin - slice.first_col),
                       .groups = slice.groups,
                       .prefetch = prefetch,
                       .prefetch_step = prefetch_step};
    if (slice.first && bias_ != nullptr) tile.add = bias_ + j;

    alignas(64) Acc result[kMaxTileRows * kMaxTileCols];
    if (result_is_bf16_) {
      Acc* sums = sums_ == nullptr ? nullptr : sums_ + rows.begin * block_n_ + columns.begin;
      if (!slice.first) {
        tile.add = sums;
        tile.ld_add = block_n_;
      }
      tile.out = slice.last ? result : sums;
      tile.ld_out = slice.last ? kMaxTileCols : block_n_;
      run_tile(static_cast<int>(rows.size()), vectors, tile);
      if (!slice.last) return;
      BF16* c = static_cast<BF16*>(args_.c.data) + i * args_.c.stride + j;
      kernels_.store_bf16(result, kMaxTileCols, c, args_.c.stride, rows.size(), cols, args_.accumulate);
      return;
    }

    Acc* c = static_cast<Acc*>(args_.c.data) + i * args_.c.stride + j;
    const bool add_c = !slice.first || args_.accumulate;
    if (cols == padded) {
      if (add_c) {
        tile.add = c;
        tile.ld_add = args_.c.stride;
      }
      tile.out = c;
      tile.ld_out = args_.c.stride;
      run_tile(static_cast<int>(rows.size()), vectors, tile);
      return;
    }
    tile.out = result;
    tile.ld_out = kMaxTileCols;
    run_tile(static_cast<int>(rows.size()), vectors, tile);
    for (int64_t r = 0; r < rows.size(); ++r) {
      for (int64_t x = 0; x < cols; ++x) {
        const Acc value = result[r * kMaxTileCols + x];
        Acc& to = c[r * args_.c.stride + x];
        to = add_c ? to + value : value;
      }
    }
  }

  const GemmArgs args_;
  const GemmKernels<Acc> kernels_;
  Threads& team_;
  const int64_t m_, n_, k_;
  int threads_ = 1;
  int64_t panel_cols_ = 0;
  int64_t num_slices_ = 1, slice_k_ = 0;
  int64_t block_m_ = 0, padded_m_ = 0, block_n_ = 0;
  int64_t group_bytes_ = 0;  // packed bytes of one row or column of a slice
  bool result_is_bf16_ = false;
  bool few_rows_ = false;  // panels of `b` are packed one at a time
  bool in_place_ = false;  // `a` is read in place
  int64_t round_slices_ = 1;
  int64_t pack_bytes_ = 0, sums_bytes_ = 0, bias_bytes_ = 0;
  char* pack_ = nullptr;
  Acc* sums_ = nullptr;
  Acc* bias_ = nullptr;
};

/// Computes one product with all threads.
template <typename Acc>
void run_by_team(const GemmArgs& args, const GemmKernels<Acc>& kernels, Threads& team, Allocator& workspace) {
  PackedGemm<Acc> gemm(args, kernels, team, team.size());
  const ScopedBlock scratch(workspace, gemm.scratch_bytes());
  gemm.prepare(scratch.as<char>());
  team.run(gemm.threads(), [&](int thread, int threads) { gemm.work(thread, threads); });
}

/// The division of a list of products into large products and items.
class ItemPlan {
 public:
  ItemPlan(std::span<const GemmArgs> products, int threads, int64_t panel_cols) : panel_cols_(panel_cols) {
    double all = 0;
    for (const GemmArgs& product : products) all += flops_of(product);
    large_flops_ = std::max(kTeamFlops * threads, all / (2 * threads));
    for (const GemmArgs& product : products) item_flops_ += is_large(product) ? 0 : flops_of(product);
    wanted_threads_ = item_flops_ / kFlopsPerThread;
    item_flops_ = std::max(1.0, item_flops_ / static_cast<double>(kItemsPerThread * threads));
  }

  bool is_large(const GemmArgs& product) const { return flops_of(product) >= large_flops_; }
  double wanted_threads() const { return wanted_threads_; }
  /// Returns the number of items of a product.
  int64_t items(const GemmArgs& product) const {
    if (is_large(product)) return 0;
    const auto wanted = static_cast<int64_t>(flops_of(product) / item_flops_);
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, product.n() / kItemCols));
  }
  /// Returns item `index` of a product: the product of some of its columns. No two items share a panel.
  GemmArgs item(const GemmArgs& product, int64_t index) const {
    const Range panels = part_of(ceil_div(product.n(), panel_cols_), items(product), index);
    const int64_t begin = panels.begin * panel_cols_;
    const int64_t count = std::min(panels.end * panel_cols_, product.n()) - begin;
    GemmArgs part = product;
    part.b = product.transpose_b ? row_range(product.b, begin, count) : column_range(product.b, begin, count);
    part.c = column_range(product.c, begin, count);
    if (product.bias) part.bias = flat_range(product.bias, begin, count);
    return part;
  }

 private:
  int64_t panel_cols_;
  double large_flops_ = 0;     // of a product that is not divided into items
  double wanted_threads_ = 0;  // for all items
  double item_flops_ = 0;      // wanted for an item
};

template <typename Acc>
void run_all(std::span<const GemmArgs> products, const GemmKernels<Acc>& kernels, Threads& team, Allocator& workspace) {
  const ItemPlan plan(products, team.size(), int64_t{2} * kernels.lanes);
  // 1. the order: the last items of all are small, so that threads end at about the same time
  const ScopedBlock pointers(workspace, std::ssize(products) * static_cast<int64_t>(sizeof(const GemmArgs*)));
  const std::span order(pointers.as<const GemmArgs*>(), products.size());
  for (size_t i = 0; i < products.size(); ++i) order[i] = &products[i];
  std::sort(order.begin(), order.end(), [](const GemmArgs* x, const GemmArgs* y) {
    return std::pair(flops_of(*y), x) < std::pair(flops_of(*x), y);
  });
  // 2. large products
  int64_t num_items = 0, item_bytes = 0;
  for (const GemmArgs* product : order) {
    if (plan.is_large(*product)) run_by_team(*product, kernels, team, workspace);
    for (int64_t i = 0; i < plan.items(*product); ++i, ++num_items) {
      item_bytes = std::max(item_bytes, PackedGemm<Acc>(plan.item(*product, i), kernels, team, 1).scratch_bytes());
    }
  }
  if (num_items == 0) return;
  // 3. items of the others; those that a thread takes ascend, so it walks once through the list
  item_bytes = round_up(item_bytes, kScratchAlignment);
  const double useful = std::min(plan.wanted_threads(), static_cast<double>(num_items));
  const int threads = static_cast<int>(std::clamp(useful, 1.0, static_cast<double>(team.size())));
  const ScopedBlock scratch(workspace, item_bytes * threads);
  std::atomic<int64_t> next{0};
  team.run(threads, [&](int thread, int /*threads*/) {
    auto product = order.begin();
    int64_t first = 0;  // item of the product
    for (int64_t i = next.fetch_add(1); i < num_items; i = next.fetch_add(1)) {
      for (; i >= first + plan.items(**product); ++product) first += plan.items(**product);
      PackedGemm<Acc> gemm(plan.item(**product, i - first), kernels, team, 1);
      gemm.prepare(scratch.as<char>() + thread * item_bytes);
      gemm.work(0, 1);
    }
  });
}

/// Calls f(kernels) with the kernels for a storage dtype.
template <typename F>
void with_kernels(DType storage, Isa isa, const F& f) {
  if (storage == DType::kFloat64) {
    f(double_kernels(isa));
  } else if (storage == DType::kBFloat16 && isa == Isa::kAvx512Bf16) {
    f(bf16_dot_kernels());
  } else {
    f(float_kernels(isa, storage));
  }
}

}  // namespace

void packed_gemm(const GemmArgs& args, Isa isa, Threads& threads, Allocator& workspace) {
  if (args.m() == 0 || args.n() == 0) return;
  with_kernels(args.a.dtype, isa, [&](const auto& kernels) { run_by_team(args, kernels, threads, workspace); });
}

void packed_gemms(std::span<const GemmArgs> products, Isa isa, Threads& threads, Allocator& workspace) {
  if (products.empty()) return;
  with_kernels(products[0].a.dtype, isa, [&](const auto& kernels) { run_all(products, kernels, threads, workspace); });
}

}  // namespace ashlar::cpu
