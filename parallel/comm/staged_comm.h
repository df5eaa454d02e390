#pragma once

#include <memory>

#include "core/backend/backend.h"
#include "parallel/comm/communicator.h"

namespace ashlar::comm {

/// A communicator of host memory for the buffers of a device that works on its own: what an operation sends is copied
/// into pinned host memory once its stream has come so far, the inner communicator moves it, and what arrives is copied
/// back. Copies go over two streams of their own, so that they wait for nothing but the work they need. The same bits
/// as the inner communicator. Its operations are complete when the way back is queued: the host waits for messages,
/// never for the device. On one rank nothing leaves the device.
class StagedComm final : public Communicator {
 public:
  /// Called by all ranks of `inner`, which, like `backend`, must outlive it.
  StagedComm(Communicator& inner, Backend& backend);
  /// The same over a communicator of its own.
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

/// The communicator of `host`'s ranks for buffers of `backend`: `host` itself (null is returned) where the backend
/// works on host memory and is done when its calls return, a StagedComm otherwise. Called by all ranks.
std::unique_ptr<Communicator> make_device_comm(Communicator& host, Backend& backend);

}  // namespace ashlar::comm
