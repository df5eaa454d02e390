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

/// References must outlive the device.
struct RunDeviceArgs {
  comm::Bootstrap& bootstrap;
  config::RunSection run;  ///< device, threads
  AttentionKernels attention = AttentionKernels::kOwn;
  Log& log;
  MemoryLedger* memory = nullptr;  ///< what the device and its libraries take is named there; null: nowhere
  /// Makes what computes, for tests; empty: kernels::make_backend, as `run` says.
  std::function<std::unique_ptr<Backend>()> make_backend;
};

/// What this rank computes with, and what joins its device to those of the other ranks. Called by all ranks.
class RunDevice {
 public:
  /// The backend and a stream. Input error of all ranks where one has no such device, or two ranks share a GPU.
  explicit RunDevice(const RunDeviceArgs& args);
  ~RunDevice();

  /// Joins the devices of all ranks. Returns what ends their communication from any thread (DeviceComm::abort); it may
  /// be empty.
  std::function<void()> connect();

  Backend& backend() { return *backend_; }
  Stream& stream() { return *stream_; }
  comm::Communicator& ranks();  ///< of all ranks, for device memory; after `connect`

 private:
  RunDeviceArgs args_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<comm::Communicator> comm_;  ///< null where the host's serves
};

}  // namespace ashlar::training
