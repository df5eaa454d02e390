#include "kernels/make_backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/open_backend.h"

namespace ashlar::kernels {

std::unique_ptr<Backend> make_backend(const BackendConfig& config) {
  if (config.device == "cpu") {
    return std::make_unique<cpu::CpuBackend>(cpu::CpuOptions{.threads = config.threads,
                                                             .log = config.log,
                                                             .max_isa = config.max_isa,
                                                             .arena_cap_bytes = config.max_memory_bytes});
  }
  if (config.device == "cuda")
    return cuda::open_backend(
        {.local_rank = config.local_rank, .max_memory_bytes = config.max_memory_bytes, .attention = config.attention});
  throw input_error("run.device", "expected \"cpu\" or \"cuda\", got \"", config.device, "\"");
}

int usable_cores() { return cpu::detect_cpu().cores; }

}  // namespace ashlar::kernels
