#include <algorithm>

#include "core/device/device_facts.h"
#include "core/device/memory_source.h"
#include "kernels/cuda/attention/cudnn_backend.h"
#include "kernels/cuda/host/cuda_state.h"
#include "kernels/cuda/open_backend.h"

namespace ashlar::ASHLAR_DEV {

namespace {

class GpuBackend final : public CudnnBackend, public DeviceFacts, public HasMemorySource {
 public:
  GpuBackend(const DeviceOptions& options, AttentionKernels attention)
      : CudnnBackend(options, {.wanted = attention,
                               .make_planner =
                                   [this] {
                                     const cudaDeviceProp& p = device().state().properties;
                                     return cudnn::make_planner(10 * p.major + p.minor);
                                   },
                               .free_bytes =
                                   [this, most = options.max_memory_bytes] {
                                     const int64_t free = memory().free_bytes;
                                     return most > 0 ? std::min(free, most - device().state().taken_bytes) : free;
                                   }}) {}

  std::string id() override { return uuid_text(device().state().properties.uuid); }
  Memory memory() override {
    size_t free_bytes = 0, total_bytes = 0;
    device().state().calls.check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    return {.total_bytes = static_cast<int64_t>(total_bytes), .free_bytes = static_cast<int64_t>(free_bytes)};
  }
  bool lock_host_memory(void* memory, int64_t bytes) override {
    if (cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault) == cudaSuccess) return true;
    static_cast<void>(cudaGetLastError());  // clears the error
    return false;
  }
  void unlock_host_memory(void* memory) override {
    device().state().calls.check(cudaHostUnregister(memory), "cudaHostUnregister");
  }
  int64_t attention_workspace_bytes() const override { return CudnnBackend::attention_workspace_bytes(); }
  void set_memory_source(std::shared_ptr<MemorySource> source, std::span<const MemoryKind> kinds) override {
    for (const MemoryKind kind : kinds)
      device().state().allocators.at(static_cast<size_t>(kind))->set_memory_source(source);
  }
};

}  // namespace

std::unique_ptr<Backend> open_backend(const OpenOptions& options) {
  const int ordinal = count_devices() == 1 ? 0 : options.local_rank;
  return std::make_unique<GpuBackend>(DeviceOptions{.ordinal = ordinal, .max_memory_bytes = options.max_memory_bytes},
                                      options.attention);
}

}  // namespace ashlar::ASHLAR_DEV
