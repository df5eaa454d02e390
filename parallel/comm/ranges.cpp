#include "parallel/comm/ranges.h"

#include <algorithm>

#include "core/base/error.h"

namespace ashlar::comm {

std::vector<Range> even_ranges(int64_t size, int parts, int64_t align) {
  ASHLAR_CHECK(size >= 0 && parts > 0 && align > 0, "got size ", size, ", parts ", parts, ", align ", align);
  const int64_t stride = (size + parts * align - 1) / (parts * align) * align;
  std::vector<Range> ranges;
  for (int64_t part = 0; part < parts; ++part) {
    ranges.push_back({std::min(size, part * stride), std::min(size, (part + 1) * stride)});
  }
  return ranges;
}

std::vector<Range> equal_ranges(int64_t size, int parts, int64_t align) {
  ASHLAR_CHECK(size >= 0 && parts > 0 && align > 0, "got size ", size, ", parts ", parts, ", align ", align);
  const int64_t each = size / (parts * align) * align;
  std::vector<Range> ranges;
  for (int i = 0; i < parts; ++i) ranges.push_back({.begin = i * each, .end = (i + 1) * each});
  ranges.back().end = size;
  return ranges;
}

std::vector<Range> ranges_of_sizes(std::span<const int64_t> sizes) {
  std::vector<Range> ranges;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    ranges.push_back({at, at + size});
    at += size;
  }
  return ranges;
}

Range chunk_of(const Range& range, int64_t k, int64_t chunk) {
  return {std::min(range.end, range.begin + k * chunk), std::min(range.end, range.begin + (k + 1) * chunk)};
}

int64_t longest(std::span<const Range> ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size = std::max(size, range.size());
  return size;
}

int64_t num_chunks(std::span<const Range> ranges, int64_t chunk) { return (longest(ranges) + chunk - 1) / chunk; }

void check_ranges(std::span<const Range> ranges, int64_t size) {
  int64_t reached = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    ASHLAR_CHECK(range.begin >= reached && range.end >= range.begin && range.end <= size, "range ", i, " is [",
                 range.begin, ", ", range.end, "): expected it between ", reached, " and ", size);
    reached = range.end;
  }
}

}  // namespace ashlar::comm
