#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ashlar::watch {

/// Environment variable that `ashlar launch` sets in the processes that it starts. Its value is the id of the launch,
/// which is the same for all attempts of --restarts.
inline constexpr const char* kLaunchVariable = "ASHLAR_LAUNCH";

/// State of a process or thread from the kernel.
struct ProcessStat {
  char state = 'X';      ///< R running, S sleeping, D uninterruptible, T stopped, Z zombie, X absent
  uint64_t started = 0;  ///< clock ticks since boot: distinguishes the process from a later one with the same id
};

/// Reads /proc/PID/stat; `task` 0 means the process itself, otherwise one of its threads.
ProcessStat process_stat(int pid, int task = 0);
/// Parses the text of /proc/PID/stat.
ProcessStat parse_process_stat(const std::string& text);

/// Returns the first line of a file; empty if the file cannot be read.
std::string first_line(const std::string& path);
/// Returns the first 4 KB of an open file of /proc as it is now; empty if it cannot be read, or if `fd` is negative.
std::string text_in(int fd);

std::string boot_id();    ///< boot id of this machine; empty if unavailable
std::string pid_space();  ///< id of the PID namespace; containers have their own

}  // namespace ashlar::watch
