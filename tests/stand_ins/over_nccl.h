#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "parallel/comm/nccl_comm.h"
#include "tests/stand_ins/virtual_gpu_extension.h"
#include "tests/support/deferred/deferred_backend.h"
#include "tests/support/ranks/ranks.h"

namespace ashlar::testing {

/// The stand-in for NCCL of this build; empty without NCCL's header.
inline std::string stand_in_nccl() {
#ifdef ASHLAR_STAND_IN_NCCL
  return ASHLAR_STAND_IN_NCCL;
#else
  return "";
#endif
}

/// A communicator over it, for the ranks of `host`, which are those of the world.
inline std::unique_ptr<comm::NcclComm> make_nccl(comm::Communicator& host, DeferredBackend& device,
                                                 const comm::NcclOptions& options = {.setup_seconds = 30}) {
  setenv("ASHLAR_NCCL", stand_in_nccl().c_str(), 0);
  take_work_of_stand_ins(device.gpu());
  return comm::NcclComm::make(host, bootstrap().control(), device, options);
}

}  // namespace ashlar::testing
