#pragma once

#include <functional>
#include <memory>

#include "core/backend/backend.h"
#include "core/base/log.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

struct DeviceCommArgs {
  Communicator& host;  ///< communicator for buffers in host memory
  ControlPlane& control;
  Backend& backend;
  Log& log;
  bool cuda = false;          ///< true if the backend's streams are CUDA streams
  bool deterministic = true;  ///< with NCCL, use one algorithm and one protocol
};

/// The communicator for device buffers, over the ranks of DeviceCommArgs::host. `all` is null if the backend works on
/// host memory and is synchronous, since DeviceCommArgs::host then accepts the backend's buffers.
struct DeviceComm {
  std::unique_ptr<Communicator> all;
  std::function<void()> abort;  ///< aborts communication from any thread, before the process ends; empty if not needed
};

/// Called by all ranks. CUDA devices communicate over NCCL (NcclComm), all others through host memory (StagedComm). If
/// a rank has no NCCL, all ranks use host memory, with a warning that names what is missing. If ASHLAR_NCCL names a
/// library, a missing NCCL is an error instead.
DeviceComm make_device_comm(const DeviceCommArgs& args);

/// Registers a buffer as a symmetric window of NCCL. This is for buffers that collectives of the communicator use
/// repeatedly. Called by all ranks without pending operations; the buffer must live as long as the communicator.
/// Returns true if the window exists on all ranks. Without NCCL, or with deterministic sums, no window is made. If NCCL
/// cannot make a window on all ranks, the log states the reason once. Collectives also work without a window.
bool make_window(Communicator& communicator, const MutView& buffer);

}  // namespace ashlar::comm
