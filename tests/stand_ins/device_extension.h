#pragma once

#include <cstddef>

// What a stand-in for a vendor's library asks of whoever owns the streams that its work is queued on, beyond CUDA's own
// functions; found with dlsym. The stand-in for the CUDA runtime has these, or a test program over a VirtualGpu
// (virtual_gpu_extension.cpp).

/// Queues work on a stream (a cudaStream_t). `step` is called when its turn comes, and again after others had theirs
/// for as long as it returns false ("not yet").
using ashlar_stand_in_enqueue_t = void(void* stream, bool (*step)(void* data), void* data, const char* name);
/// The work queued last reads or writes these bytes: what nothing orders before or after it is found.
using ashlar_stand_in_touch_t = void(const void* at, size_t bytes, bool writes);

/// Memory of the device for a vendor's library that hands it on; null where there is none. May be missing.
using ashlar_stand_in_allocate_t = void*(size_t bytes, size_t alignment);
using ashlar_stand_in_free_t = void(void* memory);
