// The door of kernels::make_backend for tests: linked into a program as an object file (ashlar_open_emulated), it takes
// the place of the libraries' cuda::open_backend, and device "cuda" is the emulated one.
#include "core/base/error.h"
#include "kernels/cuda/open_backend.h"
#include "tests/gpu_emulator/backend/emulated_backend.h"

namespace ashlar::cuda {

std::unique_ptr<Backend> open_backend(const OpenOptions& options) {
  if (options.attention == AttentionKernels::kCudnn)
    throw input_error("run.device", "the emulated device has no cuDNN; set train.attention = \"own\"");
  return std::make_unique<emulated::EmulatedBackend>(
      emulated::DeviceOptions{.max_memory_bytes = options.max_memory_bytes});
}

}  // namespace ashlar::cuda
