#include "core/device/device_facts.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/dev/cuda_state.h"
#include "kernels/cuda/open_backend.h"

namespace ashlar::ASHLAR_DEV {

namespace {

class GpuBackend final : public CudaBackend, public DeviceFacts {
 public:
  using CudaBackend::CudaBackend;

  std::string id() override { return uuid_text(device().state().properties.uuid); }
  Memory memory() override {
    size_t free_bytes = 0, total_bytes = 0;
    device().state().calls.check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return {.total_bytes = static_cast<int64_t>(total_bytes), .free_bytes = static_cast<int64_t>(free_bytes)};
  }
};

}  // namespace

std::unique_ptr<Backend> open_backend(const OpenOptions& options) {
  const int ordinal = count_devices() == 1 ? 0 : options.local_rank;
  return std::make_unique<GpuBackend>(DeviceOptions{.ordinal = ordinal, .max_memory_bytes = options.max_memory_bytes});
}

}  // namespace ashlar::ASHLAR_DEV
