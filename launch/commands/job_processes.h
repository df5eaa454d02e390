#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "launch/watch/process.h"

namespace ashlar::launch {

/// The processes of this machine that belong to the job of one `ashlar launch`, identified by an inherited environment
/// variable, and the shared memory that they leave when killed.
class JobProcesses {
 public:
  /// A variable in the environment of mpirun and of all ranks; its value identifies one launch. A rank that has the
  /// variable treats repeated SIGUSR1 of its launcher as one signal (SignalWatch::Reporter::resent).
  static constexpr const char* kVariable = watch::kLaunchVariable;

  JobProcesses();  ///< creates a unique name

  const std::string& name() const { return name_; }
  /// Running processes except this one and `mpirun`.
  std::vector<pid_t> living(pid_t mpirun) const;
  void end_all(pid_t mpirun) const;  ///< SIGKILL
  /// Records the shared files of the ranks: those of Open MPI, its transports and NCCL in /dev/shm, and Open MPI's
  /// session directory of `mpirun`.
  void look(pid_t mpirun);
  /// Removes the recorded files that still exist. Only after all processes have ended.
  void remove_leftovers();

 private:
  std::string name_;
  std::set<std::string> files_, directories_;
};

}  // namespace ashlar::launch
