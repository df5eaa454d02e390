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

/// Returns part `index` of [0, n), which is split into `parts` contiguous ranges whose sizes differ by at most one.
inline Range part_of(int64_t n, int64_t parts, int64_t index) {
  const int64_t each = n / parts;
  const int64_t more = n % parts;
  const int64_t begin = index * each + std::min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

/// Calls body(begin, end) on contiguous ranges that cover [0, n), one range per thread, at least `grain` items each. If
/// one range is enough, or inside another region of `threads`, the calling thread processes all items. `body` must not
/// throw (an exception ends the process) and may write only data of its items, so that results do not depend on the
/// number of threads.
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
