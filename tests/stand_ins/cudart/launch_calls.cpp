// Kernels: how nvcc's host code makes them known, and their launch.
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/ptx/thread.h"
#include "tests/stand_ins/cudart/enqueue.h"
#include "tests/stand_ins/cudart/kernels.h"
#include "tests/stand_ins/cudart/runtime.h"

namespace ashlar::stand_in {

namespace {

// Limits of cudaDeviceProp.
bool may_be_launched(const cudaDeviceProp& p, dim3 grid, dim3 block) {
  const auto within = [](unsigned value, int most) { return value >= 1 && value <= static_cast<unsigned>(most); };
  return within(grid.x, p.maxGridSize[0]) && within(grid.y, p.maxGridSize[1]) && within(grid.z, p.maxGridSize[2]) &&
         within(block.x, p.maxThreadsDim[0]) && within(block.y, p.maxThreadsDim[1]) &&
         within(block.z, p.maxThreadsDim[2]) && within(block.x * block.y * block.z, p.maxThreadsPerBlock);
}

emulator::dim3 extent(dim3 of) { return {of.x, of.y, of.z}; }

cudaError_t launch(Runtime& runtime, const void* host_function, dim3 grid, dim3 block, void** arguments,
                   size_t shared_bytes, cudaStream_t handle) {
  QueuedStream* const stream = runtime.stream(handle);
  if (stream == nullptr || stream->device != &runtime.current()) return cudaErrorInvalidResourceHandle;
  Kernel* const kernel = kernels().find(host_function);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (!may_be_launched(stream->device->properties, grid, block)) return cudaErrorInvalidConfiguration;
  if (shared_bytes > static_cast<size_t>(kernel->max_shared_bytes)) return cudaErrorInvalidValue;
  Kernels::load(*kernel);
  std::vector<std::vector<std::byte>> values;
  for (const int parameter : kernel->function->parameters) {
    const auto bytes = static_cast<size_t>(kernel->function->variables[static_cast<size_t>(parameter)].bytes);
    const auto* const at = static_cast<const std::byte*>(arguments[values.size()]);
    values.emplace_back(at, at + bytes);
  }
  runtime.met(reinterpret_cast<uint64_t>(host_function));
  for (const std::vector<std::byte>& value : values) {
    for (size_t at = 0; at + sizeof(void*) <= value.size(); at += sizeof(void*)) {
      const void* word = nullptr;
      std::memcpy(&word, value.data() + at, sizeof(word));
      if (stream->device->gpu.memory().holds(word, 1)) runtime.met(reinterpret_cast<uint64_t>(word));
    }
  }
  runtime.before_queueing(*stream);
  const ptx::MayTouch may_touch = [device = stream->device](const void* at, int64_t bytes) {
    return device->gpu.memory().holds(at, bytes) || device->managed.holds(at, bytes);
  };
  stream->device->gpu.launch(
      {.name = kernel->name.c_str(),
       .grid = extent(grid),
       .block = extent(block),
       .shared_bytes = static_cast<int64_t>(shared_bytes),
       .thread = [kernel, values = std::move(values),
                  may_touch] { ptx::Thread(*kernel->image->program, may_touch).run(*kernel->function, values); }},
      *stream->stream);
  return cudaSuccess;
}

}  // namespace

}  // namespace ashlar::stand_in

using ashlar::stand_in::entry;
using ashlar::stand_in::kernels;
using ashlar::stand_in::Runtime;

extern "C" {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return entry("cudaLaunchKernelExC", [&](Runtime& runtime) {
    if (config == nullptr) return cudaErrorInvalidValue;
    if (config->numAttrs != 0) return cudaErrorNotSupported;
    return ashlar::stand_in::launch(runtime, function, config->gridDim, config->blockDim, arguments,
                                    config->dynamicSmemBytes, config->stream);
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return entry("cudaLaunchKernel", [&](Runtime& runtime) {
    return ashlar::stand_in::launch(runtime, function, grid, block, arguments, shared_bytes, stream);
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return entry("cudaFuncSetAttribute", [&](Runtime& runtime) {
    ashlar::stand_in::Kernel* const kernel = kernels().find(function);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorNotSupported;
    if (value < 0 || static_cast<size_t>(value) > runtime.current().properties.sharedMemPerBlockOptin)
      return cudaErrorInvalidValue;
    kernel->max_shared_bytes = value;
    return cudaSuccess;
  });
}

// What nvcc's host code calls. A kernel's stub is never called by ours, so what a stub calls only has to be there.
void** __cudaRegisterFatBinary(void* fat_binary) { return reinterpret_cast<void**>(kernels().add_image(fat_binary)); }
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}
char __cudaInitModule(void** /*handle*/) { return 1; }

void __cudaRegisterFunction(void** handle, const char* host_function, char* /*device_function*/,
                            const char* device_name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  kernels().add(reinterpret_cast<ashlar::stand_in::Image*>(handle), host_function, device_name);
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return kernels().find(function) == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
}
