#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/log.h"
#include "launch/world.h"

namespace ashlar::launch {

/// mpirun and Slurm may bind a rank to fewer cores than its share, the machine's cores (those that its cgroup allows)
/// divided by its ranks, or than `threads`. Such a rank takes its share and says so. Call before any thread is started.
/// Returns the cores that the ranks of this machine share; without a launcher, those of this process.
int64_t widen_affinity(const World& world, Log& log, int64_t threads = 1);

/// What a rank computes with when nobody says otherwise.
struct Cores {
  int64_t machine = 1;  ///< those that the ranks of this machine share, or as many as their control group lets them use
  int64_t threads = 1;  ///< this rank's share of them, at least one
};
/// Widens the affinity as above and divides the cores among the ranks. Call before any thread is started.
Cores share_cores(const World& world, Log& log);

/// Which of the machine's cores are a rank's share.
struct CoreShare {
  std::span<const int> allowed;  ///< their numbers, ascending, at least one
  int64_t local_rank = 0;
  int64_t local_ranks = 1;
  int64_t threads = 1;  ///< at least so many cores, where there are as many
};
/// Neighbours in `allowed`. With a core or more for each rank the shares differ by at most one core, and overlap only
/// for the sake of `threads`; with fewer cores than ranks each rank takes all.
std::vector<int> share_of_cores(const CoreShare& share);

}  // namespace ashlar::launch
