#pragma once

#include <functional>
#include <memory>

#include "core/backend/backend.h"
#include "core/base/log.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

struct DeviceCommArgs {
  Communicator& host;  ///< for host buffers
  ControlPlane& control;
  Backend& backend;
  Log& log;
  bool cuda = false;          ///< the backend's streams are CUDA streams
  bool deterministic = true;  ///< NCCL: one algorithm and protocol
};

/// The communicator for device buffers, over the ranks of `host`. `all` is null if the host's communicator can be used,
/// because the backend works on host memory and is synchronous.
struct DeviceComm {
  std::unique_ptr<Communicator> all;
  std::function<void()> abort;  ///< aborts it from any thread, to end the process; empty if not needed
};

/// Called by all ranks. CUDA devices communicate over NCCL (NcclComm), all others through host memory (StagedComm). If
/// a rank has no NCCL, all use host memory, with a warning that names what is missing; if ASHLAR_NCCL names a library,
/// that is an error.
DeviceComm make_device_comm(const DeviceCommArgs& args);

/// For a buffer that collectives of the communicator use repeatedly. Called by all its ranks without pending
/// operations; the buffer must live as long as the communicator. Over NCCL, except for deterministic sums, it becomes a
/// symmetric window if possible on all ranks; otherwise the log states the reason once. Everything works without
/// windows. Returns whether it has one.
bool make_window(Communicator& communicator, const MutView& buffer);

}  // namespace ashlar::comm
