#include "launch/cpu_threads.h"

#include <sched.h>

#include <algorithm>

#include "core/base/strings.h"
#include "core/device/host_limits.h"

namespace ashlar::launch {

namespace {

std::vector<int> cores_of(const cpu_set_t& mask) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

cpu_set_t mask_of(std::span<const int> cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) CPU_SET(core, &mask);
  return mask;
}

}  // namespace

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
  const int64_t cores = std::min(widen_affinity(world, log), cgroup_limits().cores.value_or(CPU_SETSIZE));
  return {.machine = cores, .threads = std::max<int64_t>(1, cores / world.local_ranks)};
}

int64_t widen_affinity(const World& world, Log& log, int64_t threads) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  const std::vector<int> had = cores_of(mask);
  if (!world.under_mpirun) return static_cast<int64_t>(had.size());
  // Requests all cores: the kernel intersects the requested set with the cores of the cgroup.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &all);
  if (sched_setaffinity(0, sizeof(all), &all) != 0) return static_cast<int64_t>(had.size());
  sched_getaffinity(0, sizeof(all), &all);
  const std::vector<int> allowed = cores_of(all);
  const std::vector<int> share = share_of_cores(
      {.allowed = allowed, .local_rank = world.local_rank, .local_ranks = world.local_ranks, .threads = threads});
  const bool narrow = had.size() < share.size();
  const cpu_set_t wanted = narrow ? mask_of(share) : mask;
  sched_setaffinity(0, sizeof(wanted), &wanted);
  if (narrow) {
    log.info(str_cat("rank ", world.rank, " was bound to ", had.size(), " of ", allowed.size(), " cores; it now uses ",
                     share.size() == allowed.size() ? "all " : "", share.size(), ", from core ", share.front(), " to ",
                     share.back(), " (start mpirun with --bind-to none to bind no rank)"));
  }
  return static_cast<int64_t>(allowed.size());
}

}  // namespace ashlar::launch
