#pragma once

#include <span>
#include <vector>

#include "core/nn/parameter.h"

namespace ashlar::nn {

/// A contiguous part of the slabs. Tensors that hold nothing but a rank's parts hold them packed, one after another.
struct SlabPart {
  int64_t begin = 0;      ///< in the slabs
  int64_t size = 0;       ///< elements; 0 is allowed
  int64_t packed_at = 0;  ///< in a packed tensor

  int64_t end() const { return begin + size; }
  bool operator==(const SlabPart&) const = default;
};

/// The parts of a rank, ascending and apart. Built with `add`, so that they pack without gaps.
class SlabParts {
 public:
  static SlabParts whole(const ParameterStore& store);
  void add(int64_t begin, int64_t size);

  std::span<const SlabPart> all() const { return parts_; }
  int64_t packed_size() const { return packed_size_; }

 private:
  std::vector<SlabPart> parts_;
  int64_t packed_size_ = 0;
};

/// Where a slab part meets a piece: elements [first, first + size) of the piece, row by row.
struct PieceRange {
  const ParameterStore::PieceRef* ref = nullptr;
  int64_t first = 0, size = 0;
  int64_t slab_begin = 0, packed_at = 0;
};

/// Every meeting of a store's pieces with `parts`, by global name and then ascending. What lies in gaps is left out.
std::vector<PieceRange> piece_ranges(const ParameterStore& store, const SlabParts& parts);

/// A rectangle of a global tensor, and where its elements start, counted from the start of the range.
struct RangeBlock {
  int64_t row = 0, col = 0, rows = 0, cols = 0;  ///< global
  int64_t offset = 0;
};
/// A range as rectangles, in order: the end of a row, whole rows, the start of a row; at most three, none empty.
std::vector<RangeBlock> blocks_of(const PieceRange& range);

/// A tensor that is laid out like the slabs, or packed.
struct SlabTensor {
  Tensor data;
  bool packed = false;

  Tensor of(const PieceRange& range) const {
    return data.flat_range(packed ? range.packed_at : range.slab_begin, range.size);
  }
};

/// Fills the ranges with their pieces' initial values, in any floating dtype.
void initialize(const Ctx& ctx, uint64_t seed, std::span<const PieceRange> ranges, const SlabTensor& slab);

}  // namespace ashlar::nn
