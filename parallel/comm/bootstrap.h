#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"
#include "parallel/comm/tuning.h"

namespace ashlar::comm {

/// True if an MPI launcher (mpirun, srun with PMI or PMIx) started this process.
bool launched_by_mpi();

/// Starts MPI when a communicator is first requested, and ends MPI in the destructor. main owns the only object and
/// constructs it on the thread that will communicate.
///   Without a launcher there is one rank and MPI is not used. Otherwise the first request initializes MPI
/// (MPI_THREAD_FUNNELED) and the destructor finalizes it; all communicators must be destroyed by then. If the
/// destructor runs because of an exception, or communication was abandoned, MPI is not finalized: MPI_Finalize could
/// wait for peers forever. The launcher then ends the job, since a process has exited without MPI_Finalize.
class Bootstrap {
 public:
  Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  ~Bootstrap();

  /// Returns the communicator of all ranks, named "world". The first call must be made by all ranks.
  Communicator& world();
  /// Returns the control plane of all ranks, named "control". The first call must be made by all ranks.
  ControlPlane& control();
  /// Makes another communicator of all ranks, with the message sizes of `tuning`. Called by all ranks.
  std::unique_ptr<Communicator> make_world(const std::string& name, const Tuning& tuning);

  /// The communicator of all ranks; null before the first call of world().
  Communicator* started() { return world_.get(); }

  int local_rank();                ///< index of this rank among the ranks on this machine
  int local_size();                ///< number of ranks on this machine
  int64_t most_staging() const;    ///< peak bytes of staging memory for operands of other ranks
  int local_root();                ///< world rank of the first rank on this machine; identifies the machine
  static std::string host_name();  ///< name of this machine

 private:
  struct Mpi;
  void start();

  std::unique_ptr<Mpi> mpi_;  ///< null without a launcher, or before the first request
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<ControlPlane> control_;
  int local_rank_ = 0, local_size_ = 1, local_root_ = 0;
};

}  // namespace ashlar::comm
