#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tests/gpu_emulator/backend/emulated_backend.h"
#include "tests/gpu_emulator/traffic.h"

namespace ashlar::evidence {

/// What launches of one kernel came to.
struct Measured {
  emulator::Traffic traffic;
  // Of the last launch:
  std::string instance;      ///< the function, as tests/ptx/resources.txt names it
  int threads = 0;           ///< of a block
  int64_t shared_bytes = 0;  ///< dynamic, of a block
};

/// An emulated device with watched accesses that runs each call as it is queued, and what its kernels asked of memory.
class WatchedDevice {
 public:
  WatchedDevice();

  Backend& backend() { return *backend_; }
  Stream& stream() { return *stream_; }
  /// By launch name, since the last call of this.
  std::map<std::string, Measured> take();
  /// The same for one kernel that must have run; what else ran is forgotten.
  Measured take(const std::string& kernel);

 private:
  struct Launch {
    const void* function = nullptr;
    int threads = 0;
    int64_t shared_bytes = 0;
  };
  const void* function_ = nullptr;  ///< of the launch that is queued next
  std::map<std::string, Launch> launches_;
  std::unique_ptr<instrumented::EmulatedBackend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace ashlar::evidence
