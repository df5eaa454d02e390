#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "launch/watch/process.h"

namespace ashlar::launch {

/// The processes of this machine that belong to the job of one `ashlar launch`, told by a variable that they inherit,
/// and the shared memory that they leave when they are killed.
class JobProcesses {
 public:
  /// In the environment of mpirun and of all ranks; its value is the name of one launch. A rank that has it takes a
  /// repeated SIGUSR1 of its launcher for the same one (SignalWatch::Speaker::resent).
  static constexpr const char* kVariable = watch::kLaunchVariable;

  JobProcesses();  ///< a name that nobody else has

  const std::string& name() const { return name_; }
  /// Processes that live, but for this one and `mpirun`.
  std::vector<pid_t> living(pid_t mpirun) const;
  void end_all(pid_t mpirun) const;  ///< SIGKILL
  /// Takes note of what the ranks share by files: of Open MPI, its transports and NCCL in /dev/shm, and Open MPI's
  /// session directory of `mpirun`.
  void look(pid_t mpirun);
  /// Removes what was noted and is still there. Not before all of them have ended.
  void remove_leftovers();

 private:
  std::string name_;
  std::set<std::string> files_, directories_;
};

}  // namespace ashlar::launch
