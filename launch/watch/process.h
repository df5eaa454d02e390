#pragma once

#include <cstdint>
#include <string>

namespace ashlar::watch {

/// In the environment of what `ashlar launch` starts, the same for all attempts of --restarts: the name of that launch.
inline constexpr const char* kLaunchVariable = "ASHLAR_LAUNCH";

/// What the kernel says of a process or thread.
struct ProcessStat {
  char state = 'X';  ///< R running, S sleeping, D in a call that nothing interrupts, T stopped, Z ended, X not there
  uint64_t started = 0;  ///< clock ticks since the machine started: tells it from a later one of the same number
};
/// Of /proc/PID/stat; `task` 0 means the process itself, otherwise one of its threads.
ProcessStat process_stat(int pid, int task = 0);
/// The same from the text of such a file.
ProcessStat parse_process_stat(const std::string& text);

std::string boot_id();    ///< of this machine since it started; empty when the kernel does not say
std::string pid_space();  ///< processes of one space know each other's numbers; containers have their own

}  // namespace ashlar::watch
