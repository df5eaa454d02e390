#pragma once

#include <array>
#include <functional>
#include <optional>

#include "kernels/cuda/host/device.h"
#include "tests/gpu_emulator/virtual_gpu.h"

/// What the emulated device is made of: for device_emulated.cpp, gemm_emulated.cpp and tests.
namespace ashlar::ASHLAR_DEV {

struct Device::State {
  explicit State(const DeviceOptions& options);

  emulator::VirtualGpu gpu;
  std::array<std::optional<emulator::DeviceAllocator>, kNumMemoryKinds> allocators;
  emulator::KernelSubstitute substitute;
};

namespace internal {
/// Queues work that is none of our kernels: host arithmetic in the place of a vendor's library.
void queue_arithmetic(Stream& stream, const char* name, std::function<void()> run);
/// What the call just queued reads and writes: `tell` is given touch(view, writes).
void announce(Device& device, const char* name, Stream& stream,
              const std::function<void(const std::function<void(const ConstView&, bool)>&)>& tell);
}  // namespace internal

}  // namespace ashlar::ASHLAR_DEV
