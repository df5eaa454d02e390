#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ashlar {

/// The text of a file; nothing where it cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_host_file(const std::string& path);

/// What the control groups of this process (versions 1 and 2, its own and those around it) allow it.
struct CgroupLimits {
  std::optional<int64_t> cores;              ///< processor time, in whole cores: rounded down, at least one
  std::optional<int64_t> memory_bytes;       ///< the smallest limit
  std::optional<int64_t> memory_left_bytes;  ///< below the tightest; what files hold in the cache counts as free
};
/// From /proc/self/cgroup, /proc/self/mountinfo and the files that they lead to.
CgroupLimits cgroup_limits(const FileReader& read = read_host_file);

/// Cores that this process may use at once: those of its affinity mask, or of its control groups where those are fewer.
int64_t usable_cores(const FileReader& read = read_host_file);

/// Memory that the system can still back: of the machine, and of the control groups.
int64_t memory_left_bytes(const FileReader& read = read_host_file);

/// Limits of this process that a refused request for memory may have met, as a sentence ending in what to do: "this
/// process has 812 MiB of addresses and may have 1000 (ulimit -v 1024000); raise that limit". Empty where none is set.
std::string memory_limits_text();
/// The same, or where no limit is set what the machine has left: "the machine has 512 MiB of memory left".
std::string memory_state_text();

}  // namespace ashlar
