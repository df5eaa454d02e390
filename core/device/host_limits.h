#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ashlar {

/// The content of a file; nothing if it cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_host_file(const std::string& path);

/// Limits of this process by its control groups (versions 1 and 2, including parent groups).
struct CgroupLimits {
  std::optional<int64_t> cores;              ///< CPU quota in whole cores: rounded down, at least one
  std::optional<int64_t> memory_bytes;       ///< the smallest limit
  std::optional<int64_t> memory_left_bytes;  ///< remaining below the tightest limit; page cache counts as free
};
/// Reads the limits from /proc/self/cgroup, /proc/self/mountinfo and the files that they refer to.
CgroupLimits cgroup_limits(const FileReader& read = read_host_file);

/// Cores that this process may use at once: the size of its affinity mask, or its control groups' limit if lower.
int64_t usable_cores(const FileReader& read = read_host_file);

/// Memory that is still available on the machine and in the control groups.
int64_t memory_left_bytes(const FileReader& read = read_host_file);

/// Describes limits of this process that may have made an allocation fail, with advice: "this process has 812 MiB of
/// addresses and may have 1000 (ulimit -v 1024000); raise that limit". Empty if no limit is set.
std::string memory_limits_text();
/// memory_limits_text(), or without limits the free memory of the machine: "the machine has 512 MiB of memory left".
std::string memory_state_text();

}  // namespace ashlar
