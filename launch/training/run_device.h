#pragma once

#include <functional>
#include <memory>

#include "core/backend/attention.h"
#include "core/base/log.h"
#include "kernels/make_backend.h"
#include "launch/config/run_config.h"
#include "launch/training/memory.h"
#include "parallel/comm/bootstrap.h"

namespace ashlar::training {

/// Arguments of a RunDevice. References must outlive it.
struct RunDeviceArgs {
  comm::Bootstrap& bootstrap;
  config::RunSection run;  ///< only `device` and `threads` are used
  AttentionKernels attention = AttentionKernels::kOwn;
  Log& log;
  MemoryLedger* memory = nullptr;  ///< receives the memory used by the device and its libraries; may be null
  /// Creates the backend, for tests; empty: kernels::make_backend with `run`.
  std::function<std::unique_ptr<Backend>()> make_backend;
};

/// The backend of this rank, and the communication between the devices of all ranks. Called by all ranks.
class RunDevice {
 public:
  /// Creates the backend and a stream. Input error on all ranks if a rank lacks the device, or two ranks share a GPU.
  explicit RunDevice(const RunDeviceArgs& args);
  ~RunDevice();

  /// Connects the devices of all ranks. Returns a function that aborts their communication from any thread
  /// (DeviceComm::abort); it may be empty.
  std::function<void()> connect();

  Backend& backend() { return *backend_; }
  Stream& stream() { return *stream_; }
  comm::Communicator& ranks();  ///< communicator of all ranks for device memory; call it after `connect`

 private:
  RunDeviceArgs args_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<comm::Communicator> comm_;  ///< null if the host's communicator is used
};

}  // namespace ashlar::training
