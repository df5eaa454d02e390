#pragma once

#include <span>
#include <vector>

#include "core/nn/parameter.h"

namespace ashlar::nn {

/// A contiguous part of the flat buffers. Packed tensors contain only a rank's parts, one after another.
struct FlatRange {
  int64_t begin = 0;      ///< offset in the flat buffers
  int64_t size = 0;       ///< elements; 0 is allowed
  int64_t packed_at = 0;  ///< offset in a packed tensor

  int64_t end() const { return begin + size; }
  bool operator==(const FlatRange&) const = default;
};

/// The disjoint parts of a rank, ascending. Built with `add`, so that they are packed without gaps.
class FlatRanges {
 public:
  static FlatRanges whole(const ParameterStore& store);
  void add(int64_t begin, int64_t size);

  std::span<const FlatRange> all() const { return parts_; }
  int64_t packed_size() const { return packed_size_; }

 private:
  std::vector<FlatRange> parts_;
  int64_t packed_size_ = 0;
};

/// The intersection of a flat range and a tensor: elements [first, first + size) of the tensor, row by row.
struct ShardedRange {
  const ParameterStore::ShardedTensorRef* ref = nullptr;
  int64_t first = 0, size = 0;
  int64_t flat_begin = 0, packed_at = 0;
};

/// Every intersection of a store's tensors with `parts`, ordered by global name and position. Gaps are skipped.
std::vector<ShardedRange> sharded_ranges(const ParameterStore& store, const FlatRanges& parts);

/// A rectangle of a global tensor, and the offset of its elements in the range.
struct RangeBlock {
  int64_t row = 0, col = 0, rows = 0, cols = 0;  ///< global
  int64_t offset = 0;
};
/// Splits a range into rectangles, in order: the end of a row, whole rows, the start of a row; at most three, none
/// empty.
std::vector<RangeBlock> blocks_of(const ShardedRange& range);

/// A tensor laid out like the flat buffers, or packed.
struct FlatTensor {
  Tensor data;
  bool packed = false;

  Tensor of(const ShardedRange& range) const {
    return data.flat_range(packed ? range.packed_at : range.flat_begin, range.size);
  }
};

}  // namespace ashlar::nn
