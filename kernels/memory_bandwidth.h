#pragma once

#include <algorithm>

#include "core/device/allocator.h"

namespace ashlar::kernels {

/// Bytes per second of the host's cores. The four loops move 4, 8, 12 and 12 bytes per fp32 element.
struct MemoryBandwidth {
  double read = 0, copy = 0, triad = 0, update = 0;
  double best() const { return std::max({read, copy, triad, update}); }
};

/// Loops over three arrays of 256 MB from `memory` on `num_threads` threads, for about a second.
MemoryBandwidth measure_memory_bandwidth(int num_threads, Allocator& memory);

}  // namespace ashlar::kernels
