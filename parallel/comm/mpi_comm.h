#pragma once

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/comm/mpi_group.h"

namespace ashlar::comm {

/// A Communicator over MPI messages. Needs MPI_THREAD_FUNNELED. A split with a single rank is a SelfComm.
class MpiComm final : public Communicator {
 public:
  /// Takes ownership of `comm` and frees it. Splits share the engine and the staging memory.
  static std::unique_ptr<Communicator> make(MPI_Comm comm, std::string name, const Tuning& tuning,
                                            std::shared_ptr<ProgressEngine> engine,
                                            std::shared_ptr<StagingPool> staging);

 private:
  class Message;

  MpiComm(std::string name, std::shared_ptr<MpiGroup> group);

  OperationPtr make(const DeviceOperation& args, Stream& stream) override;
  std::unique_ptr<Communicator> make_split(const Split& args) override;

  std::shared_ptr<MpiGroup> group_;
};

}  // namespace ashlar::comm
