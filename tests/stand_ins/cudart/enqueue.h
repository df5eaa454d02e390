#pragma once

#include <cuda_runtime_api.h>

/// What the stand-in for the CUDA runtime offers beside CUDA's own calls: to the stand-ins of libraries that put work
/// into streams, and to tests.
extern "C" {

/// Queues work of the device. It may touch device memory, and answer "not yet" (false): then it is asked again after
/// other work and other streams had their turn. Where it throws, or the stream is none, the device has failed: each
/// later call returns cudaErrorLaunchFailure. `data` must live until it has said true.
void ashlar_stand_in_enqueue(cudaStream_t stream, bool (*step)(void* data), void* data, const char* name);

/// The work queued last reads or writes these bytes of device memory: calls of other streams that touch the same and
/// that nothing orders make the device fail, with a text that names both.
void ashlar_stand_in_touch(const void* at, size_t bytes, bool writes);

/// Starts over: every device, stream, event and block is gone. Options as in ASHLAR_STAND_IN_CUDA (README.md).
void ashlar_stand_in_reset(const char* options);

/// How often a call was made since the start, or since the reset: ashlar_stand_in_calls("cudaMalloc").
long ashlar_stand_in_calls(const char* name);
/// How often the host waited for work that was not done.
long ashlar_stand_in_host_waits(void);
/// On how many devices the process has a context.
long ashlar_stand_in_contexts(void);
/// A number made of all addresses in the device's memory that were in what was queued since the last call: kernels and
/// their arguments, copies, what stand-ins of libraries touch. Two steps with the same one could be one graph.
unsigned long long ashlar_stand_in_take_addresses(void);
/// What made the device fail, in words; empty: nothing.
const char* ashlar_stand_in_fault(void);
}
