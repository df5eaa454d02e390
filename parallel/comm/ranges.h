#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ashlar::comm {

/// Elements [begin, end) of a flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Divides `size` elements into `parts` contiguous ranges, in order. All ranges have the same size, a multiple of
/// `align`, except that the last ones may be shorter or empty.
std::vector<Range> even_ranges(int64_t size, int parts, int64_t align = 1);

/// Divides `size` elements into `parts` contiguous ranges of equal size, a multiple of `align`. The remainder, fewer
/// than parts * align elements, is appended to the last range.
std::vector<Range> equal_ranges(int64_t size, int parts, int64_t align);

/// Returns contiguous ranges of the given sizes; the first begins at 0.
std::vector<Range> ranges_of_sizes(std::span<const int64_t> sizes);

/// Returns elements [k * chunk, (k + 1) * chunk) of `range`, clipped to the range; empty if they are beyond its end.
Range chunk_of(const Range& range, int64_t k, int64_t chunk);

/// Size of the longest range.
int64_t longest(std::span<const Range> ranges);
/// Number of chunks of the longest range; 0 if all are empty.
int64_t num_chunks(std::span<const Range> ranges, int64_t chunk);

/// Throws Bug unless the ranges ascend, do not overlap and lie in [0, size).
void check_ranges(std::span<const Range> ranges, int64_t size);

}  // namespace ashlar::comm
