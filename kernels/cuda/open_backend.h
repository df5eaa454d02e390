#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_contract.h"

/// Opens a GPU's backend from code that does not include CUDA. open_backend_cuda.cpp implements it in a program built
/// with CUDA, open_backend_absent.cpp in one without. A test program may link another definition.
namespace ashlar::cuda {

struct OpenOptions {
  /// Rank on this machine: uses the visible device of that number. If only one is visible, as with schedulers that bind
  /// each rank to its own device, uses that one.
  int local_rank = 0;
  int64_t max_memory_bytes = 0;  ///< limit for all kinds of memory; 0 = all device memory
  AttentionKernels attention = AttentionKernels::kOwn;
};

/// Throws a one-line input_error if there is no such device, this program cannot use it, or it has no cuDNN although
/// its attention is required.
std::unique_ptr<Backend> open_backend(const OpenOptions& options);

}  // namespace ashlar::cuda
