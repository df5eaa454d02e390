#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/log.h"
#include "launch/world.h"

namespace ashlar::launch {

/// mpirun and Slurm may bind a rank to fewer cores than `threads`, or than its share: the cores that the cgroup allows,
/// divided by the ranks of the machine. Such a rank widens its affinity to its share and logs that. Call before any
/// thread is started. Returns the cores that the ranks of this machine share; without a launcher, those of this
/// process.
int64_t widen_affinity(const World& world, Log& log, int64_t threads = 1);

/// Default cores and threads of a rank.
struct Cores {
  int64_t machine = 1;  ///< shared by the ranks of this machine, at most those that their cgroup allows
  int64_t threads = 1;  ///< this rank's share, at least one
};
/// Widens the affinity as above and divides the cores among the ranks. Call before any thread is started.
Cores share_cores(const World& world, Log& log);

/// Input of share_of_cores.
struct CoreShare {
  std::span<const int> allowed;  ///< core numbers, ascending, at least one
  int64_t local_rank = 0;
  int64_t local_ranks = 1;
  int64_t threads = 1;  ///< minimum number of cores, if available
};
/// Returns cores that are neighbours in `allowed`. With at least one core per rank, the shares differ by at most one
/// core and overlap only to reach `threads`. With fewer cores than ranks, each rank gets all cores.
std::vector<int> share_of_cores(const CoreShare& share);

}  // namespace ashlar::launch
