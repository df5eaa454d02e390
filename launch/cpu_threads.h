#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/log.h"
#include "launch/world.h"

namespace ashlar::launch {

/// Computes this rank's cores with share_of_cores. If mpirun or Slurm has bound the rank to fewer cores, binds it to
/// the computed ones and logs the change. `threads`: minimum number of cores, if the cgroup allows so many. Call it
/// before any thread is started. Returns the number of cores that the ranks of this machine share; without a launcher,
/// the number of cores of this process.
int64_t widen_affinity(const World& world, Log& log, int64_t threads = 1);

/// Default cores and threads of a rank.
struct Cores {
  int64_t machine = 1;  ///< number of cores that the ranks of this machine share
  int64_t threads = 1;  ///< this rank's share of these cores, at least one
};
/// Calls widen_affinity, limits the number of cores to the CPU quota of the cgroup, and divides this number by the
/// number of ranks of this machine. Call it before any thread is started.
Cores share_cores(const World& world, Log& log);

/// Input of share_of_cores.
struct CoreShare {
  std::span<const int> allowed;  ///< numbers of the cores that the cgroup allows, ascending; not empty
  int64_t local_rank = 0;
  int64_t local_ranks = 1;
  int64_t threads = 1;  ///< minimum number of cores, if available
};
/// Returns this rank's cores, consecutive entries of `allowed`. With at least one core per rank, the shares of the
/// ranks differ by at most one core. They overlap only if a larger share is needed to reach CoreShare::threads. With
/// fewer cores than ranks, each rank gets all cores.
std::vector<int> share_of_cores(const CoreShare& share);

}  // namespace ashlar::launch
