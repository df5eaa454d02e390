#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"
#include "parallel/comm/tuning.h"

namespace ashlar::comm {

/// True if an MPI launcher (mpirun, srun with PMI or PMIx) started this process.
bool launched_by_mpi();

/// The ranks of this run, and MPI while it is needed. Owned by main, which constructs it on the thread that will
/// communicate; costs nothing until a communicator is requested.
///   Without a launcher there is one rank and MPI is not used. Otherwise the first call initializes MPI
/// (MPI_THREAD_FUNNELED) and the destructor finalizes it; all communicators must be destroyed by then. If an exception
/// is passing, or communication was abandoned, MPI is not finalized: waiting for peers could take forever, and a
/// launcher ends a job when a process exits without MPI_Finalize.
class Bootstrap {
 public:
  Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  ~Bootstrap();

  /// All ranks of the run, as "world". The first call must be made by all ranks.
  Communicator& world();
  /// Host values of all ranks, as "control".
  ControlPlane& control();
  /// Another communicator of all ranks with other message sizes. Called by all ranks.
  std::unique_ptr<Communicator> make_world(const std::string& name, const Tuning& tuning);

  /// The communicator of all ranks; null before the first call of world().
  Communicator* started() { return world_.get(); }

  int local_rank();                ///< rank among those on this machine
  int local_size();                ///< ranks on this machine
  int64_t most_staging() const;    ///< peak staging memory for operands of other ranks, bytes
  int local_root();                ///< world rank of the first rank on this machine; identifies the machine
  static std::string host_name();  ///< name of this machine

 private:
  struct Mpi;
  void start();

  std::unique_ptr<Mpi> mpi_;  ///< null without a launcher, or before the first call
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<ControlPlane> control_;
  int local_rank_ = 0, local_size_ = 1, local_root_ = 0;
};

}  // namespace ashlar::comm
