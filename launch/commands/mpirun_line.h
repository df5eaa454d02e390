#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ashlar::launch {

/// Ranks requested by the user. At most one of `hosts` and `hostfile` is given; with neither, the ranks run here.
struct RequestedRanks {
  int64_t ranks = 1;
  std::string hosts;                 ///< "a,b" or "a:2,b:4"; a host without a number gets its share of the ranks
  std::string hostfile;              ///< its path, for mpirun
  std::string hostfile_text;         ///< its content
  std::vector<std::string> command;  ///< program and arguments of each rank
};

/// Properties of this machine.
struct LocalMpirun {
  std::string path;                      ///< path of mpirun
  std::string version;                   ///< output of `mpirun --version`
  std::vector<std::string> environment;  ///< names of the variables that are set
  std::string host = "localhost";        ///< name of this machine
  int64_t cores = 1;                     ///< physical cores, as Open MPI counts them
  bool root = false;
  bool allocated = false;  ///< a batch system has allocated several machines, and mpirun queries it
};

/// The words of an mpirun command: for Open MPI 4 and 5 (which renamed options), or with few options for any other MPI.
/// Ranks are not bound: each chooses its cores itself (launch/world.h).
std::vector<std::string> mpirun_line(const RequestedRanks& wanted, const LocalMpirun& here);

/// `words` as a command line for a shell, quoted where needed.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace ashlar::launch
