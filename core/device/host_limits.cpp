#include "core/device/host_limits.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <new>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/base/strings.h"

namespace ashlar {

namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kNoLimit = int64_t{1} << 60;  // cgroup version 1 writes a number near 2^63 for "no limit"

/// Skips spaces and returns the number at the beginning of the rest; nullopt if there is no number, as in "max".
std::optional<int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// Returns the number after `key` on the first line of `text` that begins with `key`; nullopt if there is none.
std::optional<int64_t> number_after(std::string_view key, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  return std::nullopt;
}

std::optional<int64_t> number_of_file(const FileReader& read, const std::string& path) {
  const std::optional<std::string> text = read(path);
  return text ? number_in(*text) : std::nullopt;
}

/// True if the comma-separated list `words`, e.g. "rw,cpu,cpuacct", contains `word`.
bool lists(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

/// A mounted cgroup hierarchy: its mount point `at`, and the group `root` that is mounted there.
struct Mount {
  std::string at, root;
};

/// If `controller` is empty, finds the mount of the cgroup version 2 hierarchy, otherwise the mount of the version 1
/// hierarchy with this controller. `mountinfo` is the text of /proc/self/mountinfo.
std::optional<Mount> find_mount(const std::string& mountinfo, std::string_view controller) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash)), back(line.substr(dash + 3));
    std::string skipped, root, at, type, source, options;
    front >> skipped >> skipped >> skipped >> root >> at;
    back >> type >> source >> options;
    const bool found = controller.empty() ? type == "cgroup2" : type == "cgroup" && lists(options, controller);
    if (found) return Mount{.at = at, .root = root};
  }
  return std::nullopt;
}

/// Finds the path of this process's group: in the version 2 hierarchy if `controller` is empty, otherwise in the
/// version 1 hierarchy with this controller. `cgroup` is the text of /proc/self/cgroup.
std::optional<std::string> find_group(const std::string& cgroup, std::string_view controller) {
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() && line.starts_with("0:") : lists(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The control groups of this process in all mounted hierarchies.
class Groups {
 public:
  explicit Groups(const FileReader& read)
      : mountinfo_(read("/proc/self/mountinfo").value_or("")), cgroup_(read("/proc/self/cgroup").value_or("")) {}

  /// Returns the folders of this process's group and of its visible parent groups, in the hierarchy of `controller`.
  std::vector<std::string> folders(std::string_view controller) const {
    const std::optional<Mount> mount = find_mount(mountinfo_, controller);
    const std::optional<std::string> group = find_group(cgroup_, controller);
    if (!mount || !group) return {};
    // In a container without a cgroup namespace, the path of the group is outside the mount. Then the mount point is
    // the folder of the group.
    std::string below;
    const std::string root = mount->root == "/" ? "" : mount->root;
    if (group->starts_with(root + "/")) below = group->substr(root.size());
    std::vector<std::string> folders;
    for (; below.size() > 1; below.resize(below.rfind('/'))) folders.push_back(mount->at + below);
    folders.push_back(mount->at);
    return folders;
  }

 private:
  std::string mountinfo_, cgroup_;
};

void lower(std::optional<int64_t>& limit, int64_t value) { limit = std::min(limit.value_or(kMost), value); }

void read_core_limit(const FileReader& read, const Groups& groups, CgroupLimits& limits) {
  const auto apply = [&](std::optional<int64_t> quota, std::optional<int64_t> period) {
    if (quota && period && *quota > 0 && *period > 0) lower(limits.cores, std::max<int64_t>(1, *quota / *period));
  };
  for (const std::string& folder : groups.folders("")) {
    // Quota and period in microseconds, e.g. "150000 100000", or "max 100000" without a quota.
    const std::string both = read(folder + "/cpu.max").value_or("");
    apply(number_in(both), number_in(std::string_view(both).substr(std::min(both.find(' '), both.size()))));
  }
  for (const std::string& folder : groups.folders("cpu"))
    apply(number_of_file(read, folder + "/cpu.cfs_quota_us"), number_of_file(read, folder + "/cpu.cfs_period_us"));
}

void read_memory_limit(const FileReader& read, const Groups& groups, CgroupLimits& limits) {
  const auto apply = [&](const std::string& folder, const char* most, const char* used, const char* cached) {
    const std::optional<int64_t> limit = number_of_file(read, folder + most);
    if (!limit || *limit >= kNoLimit) return;
    lower(limits.memory_bytes, *limit);
    const std::string stat = read(folder + "/memory.stat").value_or("");
    int64_t left = *limit - number_of_file(read, folder + used).value_or(0);
    for (const char* kind : {"inactive_file ", "active_file "})
      left += number_after(str_cat(cached, kind), stat).value_or(0);
    lower(limits.memory_left_bytes, std::clamp<int64_t>(left, 0, *limit));
  };
  for (const std::string& folder : groups.folders("")) apply(folder, "/memory.max", "/memory.current", "");
  for (const std::string& folder : groups.folders("memory"))
    apply(folder, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_");
}

constexpr size_t kMaskBytes = CPU_ALLOC_SIZE(kMostCpus);

struct FreeMask {
  void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
};
using CpuMask = std::unique_ptr<cpu_set_t, FreeMask>;

CpuMask empty_mask() {
  CpuMask mask(CPU_ALLOC(kMostCpus));
  if (mask == nullptr) throw std::bad_alloc();
  CPU_ZERO_S(kMaskBytes, mask.get());
  return mask;
}

}  // namespace

std::optional<std::string> read_host_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char part[4096];
  ssize_t n = 0;
  while ((n = read(fd, part, sizeof(part))) > 0) text.append(part, static_cast<size_t>(n));
  close(fd);
  if (n < 0) return std::nullopt;
  return text;
}

CgroupLimits cgroup_limits(const FileReader& read) {
  CgroupLimits limits;
  const Groups groups(read);
  read_core_limit(read, groups, limits);
  read_memory_limit(read, groups, limits);
  return limits;
}

int read_affinity(size_t bytes, void* mask) { return sched_getaffinity(0, bytes, static_cast<cpu_set_t*>(mask)); }

std::vector<int> allowed_cpus(const AffinityReader& read) {
  const CpuMask mask = empty_mask();
  std::vector<int> cpus;
  if (read(kMaskBytes, mask.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (CPU_ISSET_S(cpu, kMaskBytes, mask.get())) cpus.push_back(cpu);
  return cpus;
}

bool set_allowed_cpus(std::span<const int> cpus) {
  const CpuMask mask = empty_mask();
  for (const int cpu : cpus) CPU_SET_S(cpu, kMaskBytes, mask.get());
  return sched_setaffinity(0, kMaskBytes, mask.get()) == 0;
}

int64_t usable_cores(const FileReader& read) {
  CgroupLimits limits;
  read_core_limit(read, Groups(read), limits);
  const auto allowed = static_cast<int64_t>(allowed_cpus().size());
  return std::max<int64_t>(1, std::min(allowed, limits.cores.value_or(kMost)));
}

int64_t memory_left_bytes(const FileReader& read) {
  const std::optional<int64_t> kilobytes = number_after("MemAvailable:", read("/proc/meminfo").value_or(""));
  const int64_t of_machine = kilobytes ? *kilobytes * 1024 : kMost;
  CgroupLimits limits;
  read_memory_limit(read, Groups(read), limits);
  return std::min(of_machine, limits.memory_left_bytes.value_or(kMost));
}

std::string memory_limits_text() {
  constexpr int64_t kMiB = int64_t{1} << 20;
  std::string text;
  const std::string status = read_host_file("/proc/self/status").value_or("");
  const auto add = [&](auto resource, const char* key, const char* what, const char* letter) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const int64_t has = number_after(key, status).value_or(0) * 1024;
    text += str_cat(text.empty() ? "this process uses " : ", and ", has / kMiB, " MiB of ", what, ", limit ",
                    static_cast<int64_t>(limit.rlim_cur) / kMiB, " MiB (ulimit -", letter, " ",
                    static_cast<int64_t>(limit.rlim_cur) / 1024, ")");
  };
  add(RLIMIT_AS, "VmSize:", "address space", "v");
  add(RLIMIT_DATA, "VmData:", "data", "d");
  return text.empty() ? text : text + "; raise that limit";
}

std::string memory_state_text() {
  const std::string limits = memory_limits_text();
  return limits.empty() ? str_cat("there are ", memory_left_bytes() >> 20, " MiB of memory left for this process")
                        : limits;
}

}  // namespace ashlar
