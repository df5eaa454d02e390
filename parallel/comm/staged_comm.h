#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// Uses a host communicator for the buffers of an asynchronous device: sent data is copied into pinned host memory when
/// its stream reaches the operation, the inner communicator transfers it, and received data is copied back. Copies use
/// two separate streams, so that they wait only for the work they need. Results have the same bits as those of the
/// inner communicator. An operation is complete when its copy back is queued, so the host waits for messages but never
/// for the device. On one rank the data stays on the device.
class StagedComm final : public Communicator {
 public:
  /// Called by all ranks of `inner`, which must outlive it, as must `backend`.
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

/// The communicator of `host`'s ranks for buffers of `backend`: null (use `host` itself) if the backend works on host
/// memory and is synchronous, else a StagedComm. Called by all ranks.
std::unique_ptr<Communicator> make_device_comm(Communicator& host, Backend& backend);

}  // namespace ashlar::comm
