#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ashlar::launch {

/// What the user asks for. At most one of `hosts` and `hostfile` is given; with neither, the ranks run here.
struct RanksWanted {
  int64_t ranks = 1;
  std::string hosts;                 ///< "a,b" or "a:2,b:4"; a host without a number takes its share of the ranks
  std::string hostfile;              ///< its name, for mpirun
  std::string hostfile_text;         ///< what it holds
  std::vector<std::string> command;  ///< program and arguments of each rank
};

/// What the machine is like.
struct MpirunHere {
  std::string path;                      ///< of mpirun
  std::string version;                   ///< what `mpirun --version` prints
  std::vector<std::string> environment;  ///< names of the variables that are set
  std::string host = "localhost";        ///< name of this one
  int64_t cores = 1;                     ///< whole ones, not hardware threads: what Open MPI counts
  bool root = false;
  bool allocated = false;  ///< a batch system has given this job several machines, and mpirun asks it
};

/// The words of an mpirun command that works: Open MPI 4 and 5 (which renamed options), or any other MPI, which is told
/// little. Ranks are not bound: each chooses its cores itself (launch/world.h).
std::vector<std::string> mpirun_line(const RanksWanted& wanted, const MpirunHere& here);

/// `words` as a line for a shell.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace ashlar::launch
