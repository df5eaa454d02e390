#include "core/nn/slab_parts.h"

#include <algorithm>

namespace ashlar::nn {

SlabParts SlabParts::whole(const ParameterStore& store) {
  SlabParts parts;
  parts.add(0, store.slab_size());
  return parts;
}

void SlabParts::add(int64_t begin, int64_t size) {
  ASHLAR_CHECK(size >= 0 && begin >= (parts_.empty() ? 0 : parts_.back().end()), "part at ", begin, " of ", size,
               " is not behind the ones before");
  parts_.push_back({.begin = begin, .size = size, .packed_at = packed_size_});
  packed_size_ += size;
}

std::vector<PieceRange> piece_ranges(const ParameterStore& store, const SlabParts& parts) {
  std::vector<PieceRange> ranges;
  for (const auto& ref : store.pieces()) {
    const int64_t begin = ref.slab_begin, end = begin + ref.piece->size();
    const auto all = parts.all();
    auto at = std::partition_point(all.begin(), all.end(), [&](const SlabPart& p) { return p.end() <= begin; });
    for (; at != all.end() && at->begin < end; ++at) {
      const int64_t from = std::max(begin, at->begin), to = std::min(end, at->end());
      if (from >= to) continue;
      ranges.push_back({.ref = &ref,
                        .first = from - begin,
                        .size = to - from,
                        .slab_begin = from,
                        .packed_at = at->packed_at + (from - at->begin)});
    }
  }
  return ranges;
}

std::vector<RangeBlock> blocks_of(const PieceRange& range) {
  const Piece& piece = *range.ref->piece;
  const int64_t C = piece.cols;
  std::vector<RangeBlock> blocks;
  int64_t at = range.first;
  const int64_t end = range.first + range.size;
  while (at < end) {
    const int64_t row = at / C, col = at % C;
    const bool whole_rows = col == 0 && end - at >= C;
    const int64_t rows = whole_rows ? (end - at) / C : 1;
    const int64_t cols = whole_rows ? C : std::min(C - col, end - at);
    blocks.push_back({.row = piece.global_row + row,
                      .col = piece.global_col + col,
                      .rows = rows,
                      .cols = cols,
                      .offset = at - range.first});
    at += rows * cols;
  }
  return blocks;
}

void initialize(const Ctx& ctx, uint64_t seed, std::span<const PieceRange> ranges, const SlabTensor& slab) {
  for (const PieceRange& range : ranges) {
    const Piece& piece = *range.ref->piece;
    const Tensor flat = slab.of(range);
    if (piece.init.kind == InitRule::Kind::kConstant) {
      ctx.backend.fill({.dst = flat.mut_view(), .value = piece.init.value}, ctx.stream);
      continue;
    }
    for (const RangeBlock& block : blocks_of(range)) {
      const Tensor t = flat.flat_range(block.offset, block.rows * block.cols).reshape({block.rows, block.cols});
      ctx.backend.random_fill({.dst = t.mut_view(),
                               .distribution = Distribution::kNormal,
                               .scale = piece.init.value,
                               .seed = seed,
                               .site = piece.site(),
                               .row_begin = block.row,
                               .col_begin = block.col,
                               .global_cols = piece.global_shape.cols()},
                              ctx.stream);
    }
  }
}

}  // namespace ashlar::nn
