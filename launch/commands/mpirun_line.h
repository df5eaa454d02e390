#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::launch {

/// Ranks requested by the user. At most one of `hosts` and `hostfile` is given. With neither, the ranks run on the
/// machines that a batch system has allocated (LocalMpirun::allocated), or else on this machine.
struct RequestedRanks {
  int64_t ranks = 1;
  std::string hosts;                 ///< "a,b" or "a:2,b:4"; a host without a number gets its share of the ranks
  std::string hostfile;              ///< path of the hostfile
  std::string hostfile_text;         ///< content of the hostfile
  std::vector<std::string> command;  ///< program and arguments of each rank
};

/// Properties of this machine and of its mpirun.
struct LocalMpirun {
  std::string path;                      ///< path of mpirun
  std::string version;                   ///< output of `mpirun --version`
  std::vector<std::string> environment;  ///< names of the variables that are set
  std::string host = "localhost";        ///< name of this machine
  int64_t cores = 1;                     ///< physical cores, as Open MPI counts them
  bool root = false;
  bool allocated = false;  ///< a batch system has allocated several machines, and mpirun knows which
};

/// Returns the words of an mpirun command. Open MPI 4 and 5 get different options, because version 5 renamed many. Any
/// other MPI gets only the number of ranks and the hosts, in the options of MPICH. mpirun does not bind ranks to cores,
/// because each rank chooses its cores itself (launch/cpu_threads.h).
std::vector<std::string> mpirun_line(const RequestedRanks& wanted, const LocalMpirun& here);

/// Returns `words` as a command line for a shell, quoted where needed.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace ashlar::launch
