#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// The job of this process, and the rank of this process in it.
struct World {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t local_ranks = 1;  ///< ranks on this machine
  int64_t local_rank = 0;   ///< rank among the ranks on this machine
  std::string host;         ///< name of this machine
  bool under_mpirun = false;
};

/// Reads the environment variables of mpirun or srun (Open MPI's, PMI's, PMIx' and Slurm's). Without them the world is
/// one rank.
World world_from_environment();

}  // namespace ashlar::launch
