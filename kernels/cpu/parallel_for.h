#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/threads.h"

namespace ashlar::cpu {

/// A half-open range of work.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Part `index` of [0, n) split into `parts` contiguous ranges whose sizes differ by at most one.
inline Range part_of(int64_t n, int64_t parts, int64_t index) {
  const int64_t each = n / parts;
  const int64_t more = n % parts;
  const int64_t begin = index * each + std::min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

/// Calls body(begin, end) on contiguous ranges that cover [0, n), one per thread, at least `grain` items each; inline
/// if one range is enough or inside another region. `body` must not throw (an exception ends the process) and may write
/// only data of its items, so that results do not depend on the thread count.
template <typename Body>
void parallel_for(Threads& threads, int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  const int64_t parts = std::min<int64_t>(threads.size(), n / std::max<int64_t>(grain, 1));
  threads.run(static_cast<int>(parts), [&](int thread, int count) {
    const Range range = part_of(n, count, thread);
    body(range.begin, range.end);
  });
}

}  // namespace ashlar::cpu
