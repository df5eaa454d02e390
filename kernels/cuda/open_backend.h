#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"

/// The way to a GPU's backend from code that sees neither CUDA nor the emulator. open_backend_cuda.cpp opens one in a
/// program that was built with nvcc; without_cuda.cpp is in its place in one that was not.
namespace ashlar::cuda {

struct OpenOptions {
  int ordinal = 0;               ///< among the visible devices
  int64_t max_memory_bytes = 0;  ///< of the device, of all kinds; 0 = what it has
};

/// Throws input_error, in one line, where there is no such device here or this program cannot use it.
std::unique_ptr<Backend> open_backend(const OpenOptions& options);

/// Whether this program can use a GPU at all.
bool built_with_cuda();

}  // namespace ashlar::cuda
