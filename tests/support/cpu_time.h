#pragma once

#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string>

namespace ashlar::testing {

/// Seconds that a core has worked for this process, or for this thread (CLOCK_THREAD_CPUTIME_ID). Bounds of it hold on
/// a machine that does other things too.
inline double cpu_seconds(clockid_t clock = CLOCK_PROCESS_CPUTIME_ID) {
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/// The same of the whole machine: of all processes, its kernel, and what its host gave to others (steal). 0 where the
/// system does not tell.
inline double machine_cpu_seconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0, steal = 0;
  file >> cpu >> user >> nice >> system >> idle >> waiting >> interrupts >> soft >> steal;
  return (user + nice + system + interrupts + soft + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace ashlar::testing
