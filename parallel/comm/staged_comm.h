#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// Uses a host communicator for the buffers of an asynchronous device: sent data is copied into pinned host memory when
/// the caller's stream reaches the operation, the inner communicator transfers the copy, and received data is copied
/// back. Copies use two separate streams, so that each copy waits only for the work on which it depends. Results have
/// the same bits as those of the inner communicator. An operation is complete for the host when its copy back is
/// queued; the host does not wait until the device has executed this copy. On one rank the data of collectives stays on
/// the device.
class StagedComm final : public Communicator {
 public:
  /// Called by all ranks of `inner`. `inner` and `backend` must outlive this object.
  StagedComm(Communicator& inner, Backend& backend);
  /// Owns the inner communicator.
  StagedComm(std::unique_ptr<Communicator> inner, Backend& backend);
  ~StagedComm() override;

  Communicator& host() override;

 private:
  struct Shared;
  class StagedOperation;
  class OnDevice;

  explicit StagedComm(std::shared_ptr<Shared> shared);
  OperationPtr make(const DeviceOperation& args, Stream& stream) override;
  OperationPtr make_alone(const DeviceOperation& args, Stream& stream);
  std::unique_ptr<Communicator> make_split(const Split& args) override;

  std::shared_ptr<Shared> shared_;
};

/// Makes the communicator of `host`'s ranks for buffers of `backend`. Returns null if the backend works on host memory
/// and is synchronous, since `host` itself can be used; else a StagedComm. Called by all ranks.
std::unique_ptr<Communicator> make_device_comm(Communicator& host, Backend& backend);

}  // namespace ashlar::comm
