#pragma once

#include <ctime>

namespace ashlar::testing {

/// Seconds that a core has worked for this process, or for this thread (CLOCK_THREAD_CPUTIME_ID). Bounds of it hold on
/// a machine that does other things too.
inline double cpu_seconds(clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace ashlar::testing
