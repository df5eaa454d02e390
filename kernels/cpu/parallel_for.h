#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace ashlar::cpu {

/// A half-open range of work.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Part `index` of [0, n) cut into `parts` contiguous ranges whose sizes differ by at most one.
inline Range part_of(int64_t n, int64_t parts, int64_t index) {
  const int64_t each = n / parts;
  const int64_t more = n % parts;
  const int64_t begin = index * each + std::min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

/// Calls body(begin, end) on contiguous ranges that cover [0, n), one a thread, at least `grain` items each; inline
/// when one range is enough or when called inside another region. `body` must not throw (an exception here ends the
/// process) and may write only what belongs to its items, so that results do not depend on the thread count.
template <typename Body>
void parallel_for(int threads, int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  const int64_t parts = std::min<int64_t>(threads, n / std::max<int64_t>(grain, 1));
  if (parts <= 1 || omp_in_parallel()) {
    body(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    // The runtime may grant fewer threads than asked for: each takes every granted-th part.
    for (int64_t i = omp_get_thread_num(); i < parts; i += omp_get_num_threads()) {
      const Range range = part_of(n, parts, i);
      body(range.begin, range.end);
    }
  }
}

}  // namespace ashlar::cpu
