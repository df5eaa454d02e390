#pragma once

#include <cstdint>
#include <string>

#include "parallel/comm/bootstrap.h"

namespace ashlar::launch {

/// Ranks of the job that this process belongs to.
struct World {
  int64_t ranks = 1;
  int64_t rank = 0;
  int64_t local_ranks = 1;  ///< ranks on this machine
  int64_t local_rank = 0;   ///< rank among them
  std::string host;         ///< name of this machine
  bool under_mpirun = false;
};

/// Reads the variables of mpirun or srun (Open MPI's, PMI's, PMIx' and Slurm's); one rank if there are none.
World world_from_environment();

}  // namespace ashlar::launch
