#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ashlar {

/// Function that returns the content of a file, or nullopt if the file cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_host_file(const std::string& path);

/// Limits that control groups impose on this process (cgroup versions 1 and 2, including parent groups).
struct CgroupLimits {
  std::optional<int64_t> cores;              ///< CPU quota as a number of whole cores: rounded down, at least 1
  std::optional<int64_t> memory_bytes;       ///< the smallest memory limit of the groups
  std::optional<int64_t> memory_left_bytes;  ///< the smallest remaining memory of the groups; page cache counts as free
};
/// Reads the limits from /proc/self/cgroup, /proc/self/mountinfo and the cgroup files to which they refer.
CgroupLimits cgroup_limits(const FileReader& read = read_host_file);

/// One more than the highest CPU number that these functions know. Linux is built for at most 8,192 CPUs; the type
/// cpu_set_t has room for 1,024.
inline constexpr int kMostCpus = 1 << 16;

/// Writes the affinity mask of the calling thread to `mask` (`bytes` bytes); returns 0, or -1 if the system refuses.
using AffinityReader = std::function<int(size_t bytes, void* mask)>;
int read_affinity(size_t bytes, void* mask);

/// Returns the numbers of the CPUs on which the calling thread may run, ascending; empty if the system does not tell.
std::vector<int> allowed_cpus(const AffinityReader& read = read_affinity);
/// Restricts the calling thread, and threads that it starts later, to those of `cpus` that its cgroup allows. Returns
/// false if none is left or the system refuses.
bool set_allowed_cpus(std::span<const int> cpus);

/// Returns how many cores this process may use at once: the size of its affinity mask, or the CPU limit of its control
/// groups if that is lower.
int64_t usable_cores(const FileReader& read = read_host_file);

/// Returns how many bytes of memory are still available to this process, on the machine and within the limits of its
/// control groups.
int64_t memory_left_bytes(const FileReader& read = read_host_file);

/// Describes limits of this process that may have made an allocation fail, with advice: "this process uses 812 MiB of
/// address space, limit 1000 MiB (ulimit -v 1024000); raise that limit". Empty if no limit is set.
std::string memory_limits_text();
/// Returns memory_limits_text() or, if no limit is set, the available memory: "there are 512 MiB of memory left for
/// this process".
std::string memory_state_text();

}  // namespace ashlar
