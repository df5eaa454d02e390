// Memory of the device, pinned memory of the host, and copies between them.
#include <cstring>

#include "core/tensor/view.h"
#include "tests/stand_ins/cudart/enqueue.h"
#include "tests/stand_ins/cudart/runtime.h"

namespace ashlar::stand_in {

namespace {

ConstView bytes_view(const void* at, size_t bytes) {
  return {at, DType::kUInt8, 1, static_cast<int64_t>(bytes), static_cast<int64_t>(bytes)};
}

cudaError_t copy(Runtime& runtime, QueuedStream& stream, void* to, const void* from, size_t bytes,
                 cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  const auto [to_place, to_device] = runtime.place_of(to, bytes);
  const auto [from_place, from_device] = runtime.place_of(from, bytes);
  if (to_place == Place::kNowhere || from_place == Place::kNowhere) return cudaErrorInvalidValue;
  const bool into = to_place == Place::kDevice, out_of = from_place == Place::kDevice;
  switch (kind) {
    case cudaMemcpyHostToHost:
      if (into || out_of) return cudaErrorInvalidValue;
      break;
    case cudaMemcpyHostToDevice:
      if (!into || out_of) return cudaErrorInvalidValue;
      break;
    case cudaMemcpyDeviceToHost:
      if (into || !out_of) return cudaErrorInvalidValue;
      break;
    case cudaMemcpyDeviceToDevice:
      if (!into || !out_of) return cudaErrorInvalidValue;
      break;
    case cudaMemcpyDefault: break;
    default: return cudaErrorInvalidMemcpyDirection;
  }
  if ((into && to_device != stream.device) || (out_of && from_device != stream.device)) return cudaErrorNotSupported;
  if (into) runtime.met(reinterpret_cast<uint64_t>(to));
  if (out_of) runtime.met(reinterpret_cast<uint64_t>(from));
  runtime.before_queueing(stream);
  stream.device->gpu.copy({.name = "copy", .to = to, .from = from, .bytes = static_cast<int64_t>(bytes)},
                          *stream.stream);
  return cudaSuccess;
}

cudaError_t set(Runtime& runtime, QueuedStream& stream, void* at, int value, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  const auto [place, device] = runtime.place_of(at, bytes);
  if (place != Place::kDevice || device != stream.device) return cudaErrorInvalidValue;
  runtime.before_queueing(stream);
  device->gpu.queue(
      "memset", [=] { std::memset(at, value, bytes); }, *stream.stream,
      [&](const auto& touch) { touch(bytes_view(at, bytes), true); });
  return cudaSuccess;
}

cudaError_t allocate_pinned(Runtime& runtime, void** block, size_t bytes) {
  if (block == nullptr) return cudaErrorInvalidValue;
  *block = nullptr;
  if (bytes == 0) return cudaSuccess;
  Device& device = runtime.current();
  *block = device.gpu.pinned().allocate(static_cast<int64_t>(bytes));
  device.pinned.emplace(*block, static_cast<int64_t>(bytes));
  return cudaSuccess;
}

/// Gives a block back; as with CUDA the host waits for the device first.
cudaError_t release(Runtime& runtime, void* block, bool pinned) {
  if (block == nullptr) return cudaSuccess;
  const auto [place, device] = runtime.place_of(block, 1);
  if (place != (pinned ? Place::kPinned : Place::kDevice)) return cudaErrorInvalidValue;
  if (device->registered.contains(block)) return cudaErrorInvalidValue;  // not memory of CUDA
  auto& blocks = pinned ? device->pinned : device->blocks;
  if (blocks.erase(block) == 0) return cudaErrorInvalidValue;  // inside a block
  device->gpu.synchronize();
  (pinned ? device->gpu.pinned() : device->gpu.memory()).release(block);
  return cudaSuccess;
}

}  // namespace

}  // namespace ashlar::stand_in

using ashlar::stand_in::Device;
using ashlar::stand_in::entry;
using ashlar::stand_in::Locked;
using ashlar::stand_in::Place;
using ashlar::stand_in::QueuedStream;
using ashlar::stand_in::Runtime;

extern "C" {

cudaError_t cudaMalloc(void** block, size_t bytes) {
  return entry("cudaMalloc", [&](Runtime& runtime) {
    if (block == nullptr) return cudaErrorInvalidValue;
    *block = nullptr;
    if (bytes == 0) return cudaSuccess;
    Device& device = runtime.current();
    *block = device.gpu.memory().allocate(static_cast<int64_t>(bytes));
    device.blocks.emplace(*block, static_cast<int64_t>(bytes));
    return cudaSuccess;
  });
}

cudaError_t cudaMallocManaged(void** block, size_t bytes, unsigned flags) {
  return entry("cudaMallocManaged", [&](Runtime& runtime) {
    if (block == nullptr || bytes == 0 || flags != cudaMemAttachGlobal) return cudaErrorInvalidValue;
    *block = runtime.current().managed.allocate(static_cast<int64_t>(bytes));
    return cudaSuccess;
  });
}

// Waits for what is queued, as CUDA's own does.
cudaError_t cudaFree(void* block) {
  return entry("cudaFree", [&](Runtime& runtime) {
    if (block == nullptr || !runtime.current().managed.holds(block, 1))
      return ashlar::stand_in::release(runtime, block, false);
    runtime.current().gpu.synchronize();
    runtime.current().managed.release(block);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** block, size_t bytes) {
  return entry("cudaMallocHost",
               [&](Runtime& runtime) { return ashlar::stand_in::allocate_pinned(runtime, block, bytes); });
}

cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned /*flags*/) {
  return entry("cudaHostAlloc",
               [&](Runtime& runtime) { return ashlar::stand_in::allocate_pinned(runtime, block, bytes); });
}

cudaError_t cudaFreeHost(void* block) {
  return entry("cudaFreeHost", [&](Runtime& runtime) { return ashlar::stand_in::release(runtime, block, true); });
}

cudaError_t cudaHostRegister(void* block, size_t bytes, unsigned flags) {
  return entry("cudaHostRegister", [&](Runtime& runtime) {
    if (block == nullptr || bytes == 0 || flags != cudaHostRegisterDefault) return cudaErrorInvalidValue;
    if (runtime.place_of(block, 1).first == Place::kPinned) return cudaErrorHostMemoryAlreadyRegistered;
    if (runtime.place_of(block, 1).first != Place::kHost) return cudaErrorInvalidValue;
    runtime.current().registered.insert(block);
    runtime.current().pinned.emplace(block, static_cast<int64_t>(bytes));
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* block) {
  return entry("cudaHostUnregister", [&](Runtime& runtime) {
    const auto [place, device] = runtime.place_of(block, 1);
    if (place != Place::kPinned || device->registered.erase(block) == 0) return cudaErrorHostMemoryNotRegistered;
    device->gpu.synchronize();
    device->pinned.erase(block);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  return entry("cudaPointerGetAttributes", [&](Runtime& runtime) {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    const auto [place, device] = runtime.place_of(at, 1);
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    if (place != Place::kDevice && place != Place::kPinned) return cudaSuccess;
    attributes->type = place == Place::kDevice ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = device->ordinal;
    attributes->devicePointer = const_cast<void*>(at);
    attributes->hostPointer = place == Place::kPinned ? const_cast<void*>(at) : nullptr;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return entry("cudaMemcpyAsync", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return ashlar::stand_in::copy(runtime, *stream, to, from, bytes, kind);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return entry("cudaMemcpy", [&](Runtime& runtime) {
    QueuedStream& stream = *runtime.stream(nullptr);
    const cudaError_t error = ashlar::stand_in::copy(runtime, stream, to, from, bytes, kind);
    if (error == cudaSuccess) stream.stream->synchronize();
    return error;
  });
}

cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t handle) {
  return entry("cudaMemsetAsync", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return ashlar::stand_in::set(runtime, *stream, at, value, bytes);
  });
}

cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  return entry("cudaMemset", [&](Runtime& runtime) {
    return ashlar::stand_in::set(runtime, *runtime.stream(nullptr), at, value, bytes);
  });
}

void ashlar_stand_in_touch(const void* at, size_t bytes, bool writes) {
  entry("ashlar_stand_in_touch", [&](Runtime& runtime) {
    const auto [place, device] = runtime.place_of(at, bytes);
    if (place != Place::kDevice) {
      runtime.fail(cudaErrorIllegalAddress, "work touches what is no device memory");
      return cudaErrorIllegalAddress;
    }
    runtime.met(reinterpret_cast<uint64_t>(at));
    device->gpu.touch(ashlar::stand_in::bytes_view(at, bytes), writes);
    return cudaSuccess;
  });
}
}
