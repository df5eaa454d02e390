#pragma once

#include <algorithm>

#include "core/device/allocator.h"

namespace ashlar::kernels {

/// Memory bandwidth of the host in bytes per second, measured with four loops over arrays a, b and c: read computes the
/// sum of b, copy is a = b, triad is a = b + s * c, update is a = s * a + b. They move 4, 8, 12 and 12 bytes per fp32
/// element.
struct MemoryBandwidth {
  double read = 0, copy = 0, triad = 0, update = 0;
  double best() const { return std::max({read, copy, triad, update}); }
};

/// Runs the four loops on `num_threads` threads for about a second in total. Allocates three arrays of 256 MB from
/// `memory`.
MemoryBandwidth measure_memory_bandwidth(int num_threads, Allocator& memory);

}  // namespace ashlar::kernels
