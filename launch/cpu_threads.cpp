#include "launch/cpu_threads.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/strings.h"
#include "core/device/host_limits.h"

namespace ashlar::launch {

std::vector<int> share_of_cores(const CoreShare& share) {
  const auto cores = static_cast<int64_t>(share.allowed.size());
  if (cores < share.local_ranks) return {share.allowed.begin(), share.allowed.end()};
  const int64_t begin = share.local_rank * cores / share.local_ranks;
  const int64_t end = (share.local_rank + 1) * cores / share.local_ranks;
  const int64_t size = std::min(std::max(end - begin, share.threads), cores);
  const auto first = share.allowed.begin() + std::min(begin, cores - size);
  return {first, first + size};
}

Cores share_cores(const World& world, Log& log) {
  constexpr int64_t kNoQuota = std::numeric_limits<int64_t>::max();
  const int64_t cores = std::min(widen_affinity(world, log), cgroup_limits().cores.value_or(kNoQuota));
  return {.machine = cores, .threads = std::max<int64_t>(1, cores / world.local_ranks)};
}

int64_t widen_affinity(const World& world, Log& log, int64_t threads) {
  const std::vector<int> had = allowed_cpus();
  if (had.empty()) return 1;
  if (!world.under_mpirun) return static_cast<int64_t>(had.size());
  // Requests all cores: the kernel intersects the requested set with the cores of the cgroup.
  std::vector<int> all(kMostCpus);
  std::iota(all.begin(), all.end(), 0);
  if (!set_allowed_cpus(all)) return static_cast<int64_t>(had.size());
  const std::vector<int> allowed = allowed_cpus();
  const std::vector<int> share = share_of_cores(
      {.allowed = allowed, .local_rank = world.local_rank, .local_ranks = world.local_ranks, .threads = threads});
  const bool narrow = had.size() < share.size();
  set_allowed_cpus(narrow ? share : had);
  if (narrow) {
    log.info(str_cat("rank ", world.rank, " was bound to ", had.size(), " of ", allowed.size(), " cores; it now uses ",
                     share.size() == allowed.size() ? "all " : "", share.size(), ", from core ", share.front(), " to ",
                     share.back(), " (start mpirun with --bind-to none to bind no rank)"));
  }
  return static_cast<int64_t>(allowed.size());
}

}  // namespace ashlar::launch
