#include "core/nn/flat_ranges.h"

#include <algorithm>

namespace ashlar::nn {

FlatRanges FlatRanges::whole(const ParameterStore& store) {
  FlatRanges parts;
  parts.add(0, store.flat_size());
  return parts;
}

void FlatRanges::add(int64_t begin, int64_t size) {
  const int64_t least = parts_.empty() ? 0 : parts_.back().end();
  ASHLAR_CHECK(size >= 0, "range at ", begin, " has ", size, " elements: expected 0 or more");
  ASHLAR_CHECK(begin >= least, "range [", begin, ", ", begin + size, "): expected begin >= ", least,
               ", the end of the previous range");
  parts_.push_back({.begin = begin, .size = size, .packed_at = packed_size_});
  packed_size_ += size;
}

std::vector<ShardedRange> sharded_ranges(const ParameterStore& store, const FlatRanges& parts) {
  std::vector<ShardedRange> ranges;
  for (const auto& ref : store.sharded_tensors()) {
    const int64_t begin = ref.flat_begin, end = begin + ref.tensor->size();
    const auto all = parts.all();
    auto at = std::partition_point(all.begin(), all.end(), [&](const FlatRange& p) { return p.end() <= begin; });
    for (; at != all.end() && at->begin < end; ++at) {
      const int64_t from = std::max(begin, at->begin), to = std::min(end, at->end());
      if (from >= to) continue;
      ranges.push_back({.ref = &ref,
                        .first = from - begin,
                        .size = to - from,
                        .flat_begin = from,
                        .packed_at = at->packed_at + (from - at->begin)});
    }
  }
  return ranges;
}

std::vector<ShardedRange> buffer_ranges(const ParameterStore& store, BufferUse use) {
  std::vector<ShardedRange> ranges;
  for (const auto& ref : store.buffer_tensors(use)) {
    ranges.push_back(
        {.ref = &ref, .size = ref.tensor->size(), .flat_begin = ref.flat_begin, .packed_at = ref.flat_begin});
  }
  return ranges;
}

std::vector<RangeBlock> blocks_of(const ShardedRange& range) {
  const ShardedTensor& tensor = *range.ref->tensor;
  const int64_t C = tensor.cols;
  std::vector<RangeBlock> blocks;
  int64_t at = range.first;
  const int64_t end = range.first + range.size;
  while (at < end) {
    const int64_t row = at / C, col = at % C;
    const bool whole_rows = col == 0 && end - at >= C;
    const int64_t rows = whole_rows ? (end - at) / C : 1;
    const int64_t cols = whole_rows ? C : std::min(C - col, end - at);
    blocks.push_back({.row = tensor.global_row + row,
                      .col = tensor.global_col + col,
                      .rows = rows,
                      .cols = cols,
                      .offset = at - range.first});
    at += rows * cols;
  }
  return blocks;
}

}  // namespace ashlar::nn
