#include "kernels/make_backend.h"

#include "kernels/cpu/cpu_backend.h"

namespace ashlar::kernels {

std::unique_ptr<Backend> make_cpu_backend(const cpu::CpuOptions& options) {
  return std::make_unique<cpu::CpuBackend>(options);
}

}  // namespace ashlar::kernels
