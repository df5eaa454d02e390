#pragma once

#include <span>
#include <vector>

#include "core/nn/parameter.h"

namespace ashlar::nn {

/// A contiguous range of the flat buffers. A packed tensor contains only the ranges that a rank owns, one after
/// another.
struct FlatRange {
  int64_t begin = 0;      ///< offset in the flat buffers
  int64_t size = 0;       ///< number of elements; may be 0
  int64_t packed_at = 0;  ///< offset of the range in a packed tensor

  int64_t end() const { return begin + size; }
  bool operator==(const FlatRange&) const = default;
};

/// The ranges of the flat buffers that a rank owns: disjoint, and in ascending order. `add` appends a range and gives
/// it the next free offset in a packed tensor.
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

/// The intersection of a flat range and a tensor: the elements [first, first + size) of this rank's part of the tensor,
/// in row-major order.
struct ShardedRange {
  const ParameterStore::ShardedTensorRef* ref = nullptr;
  int64_t first = 0, size = 0;
  int64_t flat_begin = 0, packed_at = 0;
};

/// Returns all non-empty intersections of the store's tensors with `parts`, ordered by tensor name and position.
std::vector<ShardedRange> sharded_ranges(const ParameterStore& store, const FlatRanges& parts);

/// Returns the buffers of the store with this use as ranges of its buffer_values, ordered by name.
std::vector<ShardedRange> buffer_ranges(const ParameterStore& store, BufferUse use);

/// A rectangle of a global tensor whose elements are contiguous in a ShardedRange. `offset` is the index of the first
/// element in that range.
struct RangeBlock {
  int64_t row = 0, col = 0, rows = 0, cols = 0;  ///< position in the global tensor, and size
  int64_t offset = 0;
};
/// Splits a range into at most three non-empty rectangles, in order: the end of a row, whole rows, the start of a row.
std::vector<RangeBlock> blocks_of(const ShardedRange& range);

/// A tensor with the elements of the whole flat buffers or, if `packed`, only of the ranges that this rank owns.
struct FlatTensor {
  Tensor data;
  bool packed = false;

  Tensor of(const ShardedRange& range) const {
    return data.flat_range(packed ? range.packed_at : range.flat_begin, range.size);
  }
};

}  // namespace ashlar::nn
