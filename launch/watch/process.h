#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ashlar::watch {

/// Environment variable that `ashlar launch` sets in the processes that it starts: the id of the launch, the same for
/// all attempts of --restarts.
inline constexpr const char* kLaunchVariable = "ASHLAR_LAUNCH";

/// State of a process or thread from the kernel.
struct ProcessStat {
  char state = 'X';      ///< R running, S sleeping, D uninterruptible, T stopped, Z zombie, X absent
  uint64_t started = 0;  ///< clock ticks since boot: distinguishes it from a later process with the same id
};

/// Reads /proc/PID/stat; `task` 0 means the process itself, otherwise one of its threads.
ProcessStat process_stat(int pid, int task = 0);
/// Parses the text of such a file.
ProcessStat parse_process_stat(const std::string& text);

std::string boot_id();    ///< boot id of this machine; empty if unavailable
std::string pid_space();  ///< id of the PID namespace; containers have their own

}  // namespace ashlar::watch
