#pragma once

#include <cstdint>
#include <tuple>

#include "core/device/stream.h"
#include "kernels/cuda/dev/kernel.h"

/// What the host side of the backend may ask of a device: memory, streams, copies, launches, matrix products. Under
/// nvcc the CUDA runtime does it, otherwise the emulator of kernels/cuda_host.
namespace ashlar::ASHLAR_DEV {

/// How a kernel is launched.
struct Launch {
  const char* name;  ///< for reports and errors
  dim3 grid;
  dim3 block;                ///< threads, a multiple of 32
  int64_t shared_bytes = 0;  ///< of ASHLAR_DYNAMIC_SHARED
};

/// Queues a kernel; arguments travel by value.
///   run_kernel(stream, {.name = "fill", .grid = blocks, .block = 256}, fill_kernel<T>, data, size, value);
template <typename... Params, typename... Args>
void run_kernel(Stream& stream, const Launch& launch, void (*kernel)(Params...), Args&&... args);

}  // namespace ashlar::ASHLAR_DEV
