#pragma once

#include <functional>
#include <memory>

#include "core/backend/backend.h"
#include "core/base/log.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control_plane.h"

namespace ashlar::comm {

struct DeviceCommArgs {
  Communicator& host;  ///< of host memory
  ControlPlane& control;
  Backend& backend;
  Log& log;
  bool cuda = false;          ///< the backend's streams are CUDA's
  bool deterministic = true;  ///< of NCCL: one algorithm and protocol
};

/// What the ranks of `host` exchange buffers of `backend` with. `all` is null where the host's communicator serves: the
/// backend works on host memory and is done when its calls return.
struct DeviceComm {
  std::unique_ptr<Communicator> all;
  std::function<void()> abort;  ///< ends it from any thread, for who ends the process; empty where nothing needs it
};

/// Called by all ranks. CUDA devices of several ranks exchange over NCCL (NcclComm), all others through host memory
/// (StagedComm). Where a rank has no NCCL all go through host memory, and a warning says what is missing; not where
/// ASHLAR_NCCL names a library, which is then an error.
DeviceComm make_device_comm(const DeviceCommArgs& args);

/// For a buffer that collectives of the communicator use again and again. Called by all its ranks, with nothing under
/// way; the buffer stays as long as the communicator. Over NCCL, but for deterministic sums, it becomes a symmetric
/// window, where this is possible on all ranks; the log says once why it is not. Everything works without. Whether it
/// has.
bool make_window(Communicator& communicator, const MutView& buffer);

}  // namespace ashlar::comm
