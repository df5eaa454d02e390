#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_contract.h"

/// Opens a GPU's backend from code that does not include CUDA headers. open_backend_cuda.cpp implements it in a program
/// built with CUDA, open_backend_absent.cpp in a program built without CUDA. A test program may link another
/// definition of open_backend.
namespace ashlar::cuda {

struct OpenOptions {
  /// Index of this rank on its machine. The rank uses the visible device with that index, or the only visible device if
  /// there is just one, as under schedulers that bind each rank to its own device.
  int local_rank = 0;
  int64_t max_memory_bytes = 0;  ///< limit for all kinds of device memory together; 0 = no limit
  AttentionKernels attention = AttentionKernels::kOwn;
};

/// Throws a one-line input_error if the device does not exist, if this program cannot use it, or if cuDNN is required
/// for attention but is not available.
std::unique_ptr<Backend> open_backend(const OpenOptions& options);

}  // namespace ashlar::cuda
