#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"
#include "parallel/comm/tuning.h"

namespace ashlar::comm {

/// Whether a launcher of MPI programs (mpirun, srun with PMI or PMIx) started this process.
bool launched_by_mpi();

/// The ranks of this run, and MPI for as long as they need it. Owned by main, which makes it on the thread that will
/// communicate; costs nothing until somebody asks for a communicator.
///   Started without a launcher there is one rank and MPI is never touched. Otherwise the first call starts MPI
/// (MPI_THREAD_FUNNELED) and the destructor ends it; all communicators must be gone by then. When an exception is
/// passing, or communication was given up, MPI is left as it is: waiting for peers could take for ever, and a launcher
/// ends a job whose process leaves without goodbye.
class Bootstrap {
 public:
  Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;
  ~Bootstrap();

  /// All ranks of the run, as "world". The first call is one that all ranks make.
  Communicator& world();
  /// Host values of all ranks, as "control".
  ControlPlane& control();
  /// Another communicator of all ranks, cut into messages in another way. Called by all ranks.
  std::unique_ptr<Communicator> make_world(const std::string& name, const Tuning& tuning);

  /// The communicator of all ranks; null before the first call of world().
  Communicator* started() { return world_.get(); }

  int local_rank();                ///< among the ranks on this machine
  int local_size();                ///< ranks on this machine
  int64_t most_staging() const;    ///< bytes that operands of other ranks have needed at once
  int local_root();                ///< world rank of the first of them: a number of the machine
  static std::string host_name();  ///< of this machine

 private:
  struct Mpi;
  void start();

  std::unique_ptr<Mpi> mpi_;  ///< null without a launcher, or before the first call
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<ControlPlane> control_;
  int local_rank_ = 0, local_size_ = 1, local_root_ = 0;
};

}  // namespace ashlar::comm
