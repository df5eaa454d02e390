// Devices, versions and errors.
#include <cstdio>
#include <map>

#include "tests/stand_ins/cudart/enqueue.h"
#include "tests/stand_ins/cudart/runtime.h"

namespace ashlar::stand_in {

namespace {

struct ErrorText {
  const char* name;
  const char* text;
};

const std::map<cudaError_t, ErrorText>& error_texts() {
  static const std::map<cudaError_t, ErrorText> table = {
      {cudaSuccess, {"cudaSuccess", "no error"}},
      {cudaErrorInvalidValue, {"cudaErrorInvalidValue", "invalid argument"}},
      {cudaErrorMemoryAllocation, {"cudaErrorMemoryAllocation", "out of memory"}},
      {cudaErrorInitializationError, {"cudaErrorInitializationError", "initialization error"}},
      {cudaErrorInvalidConfiguration, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
      {cudaErrorInsufficientDriver,
       {"cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"}},
      {cudaErrorInvalidDeviceFunction, {"cudaErrorInvalidDeviceFunction", "invalid device function"}},
      {cudaErrorNoDevice, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
      {cudaErrorInvalidDevice, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
      {cudaErrorNoKernelImageForDevice,
       {"cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"}},
      {cudaErrorECCUncorrectable, {"cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"}},
      {cudaErrorInvalidResourceHandle, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}},
      {cudaErrorNotReady, {"cudaErrorNotReady", "device not ready"}},
      {cudaErrorIllegalAddress, {"cudaErrorIllegalAddress", "an illegal memory access was encountered"}},
      {cudaErrorLaunchFailure, {"cudaErrorLaunchFailure", "unspecified launch failure"}},
      {cudaErrorLaunchTimeout, {"cudaErrorLaunchTimeout", "the launch timed out and was terminated"}},
      {cudaErrorHardwareStackError, {"cudaErrorHardwareStackError", "hardware stack error"}},
      {cudaErrorHostMemoryAlreadyRegistered,
       {"cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"}},
      {cudaErrorHostMemoryNotRegistered,
       {"cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"}},
      {cudaErrorNotPermitted, {"cudaErrorNotPermitted", "operation not permitted"}},
      {cudaErrorNotSupported, {"cudaErrorNotSupported", "operation not supported"}},
      {cudaErrorUnknown, {"cudaErrorUnknown", "unknown error"}},
  };
  return table;
}

const ErrorText& text_of(cudaError_t error) {
  static const ErrorText unknown = {"cudaErrorUnknown", "an error that the stand-in has no words for"};
  const auto found = error_texts().find(error);
  return found == error_texts().end() ? unknown : found->second;
}

}  // namespace

}  // namespace ashlar::stand_in

using ashlar::stand_in::entry;
using ashlar::stand_in::entry_without_device;
using ashlar::stand_in::Locked;
using ashlar::stand_in::Runtime;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return ashlar::stand_in::text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return ashlar::stand_in::text_of(error).text; }

cudaError_t cudaGetLastError() { return Locked()->take_error(); }
cudaError_t cudaPeekAtLastError() { return Locked()->peek_error(); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  return entry_without_device("cudaRuntimeGetVersion", [&](Runtime&) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return entry_without_device("cudaDriverGetVersion", [&](Runtime& runtime) {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = runtime.options().driver;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return entry("cudaGetDeviceCount", [&](Runtime& runtime) {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = runtime.options().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return entry("cudaSetDevice", [&](Runtime& runtime) {
    if (device < 0 || device >= runtime.options().devices) return cudaErrorInvalidDevice;
    runtime.set_current(device);
    runtime.device(device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return entry("cudaGetDevice", [&](Runtime& runtime) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = runtime.current_ordinal();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return entry("cudaGetDeviceProperties", [&](Runtime& runtime) {
    if (properties == nullptr) return cudaErrorInvalidValue;
    if (device < 0 || device >= runtime.options().devices) return cudaErrorInvalidDevice;
    *properties = ashlar::stand_in::properties_of(runtime.options(), device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return entry("cudaDeviceGetAttribute", [&](Runtime& runtime) {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (device < 0 || device >= runtime.options().devices) return cudaErrorInvalidDevice;
    const cudaDeviceProp p = ashlar::stand_in::properties_of(runtime.options(), device);
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor: *value = p.major; return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor: *value = p.minor; return cudaSuccess;
      case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; return cudaSuccess;
      case cudaDevAttrWarpSize: *value = p.warpSize; return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(p.sharedMemPerBlockOptin);
        return cudaSuccess;
      case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; return cudaSuccess;
      case cudaDevAttrEccEnabled: *value = p.ECCEnabled; return cudaSuccess;
      default: return cudaErrorNotSupported;
    }
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return entry("cudaDeviceGetPCIBusId", [&](Runtime& runtime) {
    if (text == nullptr || length < 13) return cudaErrorInvalidValue;
    if (device < 0 || device >= runtime.options().devices) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return entry("cudaDeviceSynchronize", [](Runtime& runtime) {
    runtime.current().gpu.synchronize();
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return entry("cudaMemGetInfo", [&](Runtime& runtime) {
    if (free_bytes == nullptr || total_bytes == nullptr) return cudaErrorInvalidValue;
    ashlar::stand_in::Device& device = runtime.current();
    *total_bytes = device.properties.totalGlobalMem;
    int64_t held = device.context_bytes;
    for (const auto& [block, bytes] : device.blocks) held += bytes;
    *free_bytes = *total_bytes - static_cast<size_t>(held);
    return cudaSuccess;
  });
}

void ashlar_stand_in_reset(const char* options) { Locked::reset(options); }
long ashlar_stand_in_calls(const char* name) { return Locked()->calls(name); }
unsigned long long ashlar_stand_in_take_addresses() { return Locked()->take_met(); }
long ashlar_stand_in_contexts() { return Locked()->num_contexts(); }
long ashlar_stand_in_host_waits() { return Locked()->host_waits(); }
const char* ashlar_stand_in_fault() { return Locked()->fault().c_str(); }
}
