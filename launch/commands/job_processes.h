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
  /// variable treats repeated SIGUSR1 from its launcher as one signal (SignalWatch::Reporter::resent).
  static constexpr const char* kVariable = watch::kLaunchVariable;

  JobProcesses();  ///< makes a unique value for kVariable

  const std::string& name() const { return name_; }
  /// Returns the running processes of the job, except this one and `mpirun`.
  std::vector<pid_t> living(pid_t mpirun) const;
  void end_all(pid_t mpirun) const;  ///< sends SIGKILL to living(mpirun)
  /// Records the files that killed ranks would leave behind: in /dev/shm the files of Open MPI, of its transports and
  /// of NCCL, and the session directory that Open MPI creates for `mpirun`.
  void look(pid_t mpirun);
  /// Removes the recorded files that still exist. Call it only after all processes of the job have ended.
  void remove_leftovers();

 private:
  std::string name_;
  std::set<std::string> files_, directories_;
};

}  // namespace ashlar::launch
