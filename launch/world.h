#pragma once

#include <cstdint>

#include "core/base/log.h"

namespace ashlar::launch {

/// How this process was started.
struct World {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t local_ranks = 1;  ///< ranks on this machine
  bool under_mpirun = false;
};

/// Reads what mpirun put into the environment (OpenMPI's and PMI's variables); one rank without it.
World world_from_environment();

/// mpirun binds a single rank to one core unless told otherwise: such a rank takes all cores of the machine back and
/// says so. Call before any thread is started.
void widen_affinity(const World& world, Log& log);

}  // namespace ashlar::launch
