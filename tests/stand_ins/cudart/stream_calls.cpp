// Streams, events and host functions.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "core/base/strings.h"
#include "tests/stand_ins/cudart/enqueue.h"
#include "tests/stand_ins/cudart/runtime.h"

namespace ashlar::stand_in {

namespace {

constexpr int kHighestPriority = -5;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

cudaError_t make_stream(Runtime& runtime, cudaStream_t* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags != cudaStreamDefault && flags != cudaStreamNonBlocking)) return cudaErrorInvalidValue;
  Device& device = runtime.current();
  *handle = runtime.add(
      QueuedStream{.device = &device, .stream = device.gpu.make_stream(), .flags = flags, .priority = priority});
  return cudaSuccess;
}

cudaError_t make_event(Runtime& runtime, cudaEvent_t* handle, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if (handle == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
  if ((flags & cudaEventInterprocess) != 0) return cudaErrorNotSupported;
  Device& device = runtime.current();
  *handle =
      runtime.add(QueuedEvent{.device = &device, .event = device.gpu.make_event(), .flags = flags, .seconds = nullptr});
  return cudaSuccess;
}

}  // namespace

}  // namespace ashlar::stand_in

using ashlar::stand_in::entry;
using ashlar::stand_in::QueuedEvent;
using ashlar::stand_in::QueuedStream;
using ashlar::stand_in::Runtime;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return entry("cudaStreamCreate",
               [&](Runtime& runtime) { return ashlar::stand_in::make_stream(runtime, handle, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return entry("cudaStreamCreateWithFlags",
               [&](Runtime& runtime) { return ashlar::stand_in::make_stream(runtime, handle, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  return entry("cudaStreamCreateWithPriority", [&](Runtime& runtime) {
    const int kept = std::min(0, std::max(ashlar::stand_in::kHighestPriority, priority));  // as CUDA does
    return ashlar::stand_in::make_stream(runtime, handle, flags, kept);
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return entry("cudaDeviceGetStreamPriorityRange", [&](Runtime&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = ashlar::stand_in::kHighestPriority;
    return cudaSuccess;
  });
}

// Its work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return entry("cudaStreamDestroy",
               [&](Runtime& runtime) { return runtime.remove(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return entry("cudaStreamSynchronize", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    stream->stream->synchronize();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return entry("cudaStreamQuery", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    ashlar::emulator::WorkQueues& queues = stream->device->gpu.queues();
    const int index = ashlar::emulator::VirtualGpu::index_of(*stream->stream);
    return queues.reached(queues.mark(index)) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return entry("cudaStreamGetFlags", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return entry("cudaStreamGetPriority", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (priority == nullptr) return cudaErrorInvalidValue;
    *priority = stream->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return entry("cudaStreamGetDevice", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = stream->device->ordinal;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return entry("cudaStreamIsCapturing", [&](Runtime& runtime) {
    if (runtime.stream(handle) == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  return entry("cudaStreamWaitEvent", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    QueuedEvent* const event = runtime.event(event_handle);
    if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != 0) return cudaErrorInvalidValue;
    if (stream->device != event->device) return cudaErrorNotSupported;
    runtime.before_queueing(*stream);
    stream->stream->wait_for(*event->event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return entry("cudaEventCreate",
               [&](Runtime& runtime) { return ashlar::stand_in::make_event(runtime, handle, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return entry("cudaEventCreateWithFlags",
               [&](Runtime& runtime) { return ashlar::stand_in::make_event(runtime, handle, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return entry("cudaEventDestroy",
               [&](Runtime& runtime) { return runtime.remove(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle; });
}

cudaError_t cudaEventRecord(cudaEvent_t event_handle, cudaStream_t handle) {
  return entry("cudaEventRecord", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    QueuedEvent* const event = runtime.event(event_handle);
    if (stream == nullptr || event == nullptr || stream->device != event->device) return cudaErrorInvalidResourceHandle;
    runtime.before_queueing(*stream);
    if ((event->flags & cudaEventDisableTiming) == 0) {
      event->seconds = std::make_shared<double>(-1);
      stream->device->gpu.queue(
          "event", [seconds = event->seconds] { *seconds = ashlar::stand_in::now(); }, *stream->stream);
    }
    stream->stream->record(*event->event);
    event->recorded = true;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return entry("cudaEventQuery", [&](Runtime& runtime) {
    QueuedEvent* const event = runtime.event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    return event->event->reached() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return entry("cudaEventSynchronize", [&](Runtime& runtime) {
    runtime.current();  // makes the context of the thread's device
    QueuedEvent* const event = runtime.event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    event->event->synchronize();
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return entry("cudaEventElapsedTime", [&](Runtime& runtime) {
    QueuedEvent* const start = runtime.event(start_handle);
    QueuedEvent* const end = runtime.event(end_handle);
    if (start == nullptr || end == nullptr) return cudaErrorInvalidResourceHandle;
    if (!start->recorded || !end->recorded || !start->seconds || !end->seconds) return cudaErrorInvalidResourceHandle;
    if (milliseconds == nullptr) return cudaErrorInvalidValue;
    if (*start->seconds < 0 || *end->seconds < 0) return cudaErrorNotReady;
    *milliseconds = static_cast<float>((*end->seconds - *start->seconds) * 1e3);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return entry("cudaLaunchHostFunc", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    runtime.before_queueing(*stream);
    stream->device->gpu.host_function(
        "host function", [&runtime, function, data] { runtime.in_callback([&] { function(data); }); }, *stream->stream);
    return cudaSuccess;
  });
}

void ashlar_stand_in_enqueue(cudaStream_t handle, bool (*step)(void*), void* data, const char* name) {
  entry("ashlar_stand_in_enqueue", [&](Runtime& runtime) {
    QueuedStream* const stream = runtime.stream(handle);
    if (stream == nullptr) {
      runtime.fail(cudaErrorLaunchFailure, ashlar::str_cat(name, " goes into a stream that is none"));
      return cudaErrorInvalidResourceHandle;
    }
    runtime.before_queueing(*stream);
    stream->device->gpu.queue_step(
        name,
        [&runtime, step, data] {
          bool finished = false;
          runtime.in_callback([&] { finished = step(data); });
          return finished;
        },
        *stream->stream);
    return cudaSuccess;
  });
}
}
