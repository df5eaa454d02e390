#pragma once

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "kernels/cuda/attention/cudnn_contract.h"

/// The way to a GPU's backend from code that does not see CUDA. open_backend_cuda.cpp opens one in a program that was
/// built with CUDA; open_backend_absent.cpp is in its place in one that was not. A test program may link a definition
/// of its own instead.
namespace ashlar::cuda {

struct OpenOptions {
  /// Among the ranks on this machine: it takes the visible device of that number. Where one alone is visible, as
  /// schedulers do it that bind each rank to its own, it takes that one.
  int local_rank = 0;
  int64_t max_memory_bytes = 0;  ///< of the device, of all kinds; 0 = what it has
  AttentionKernels attention = AttentionKernels::kOwn;
};

/// Throws input_error, in one line, where there is no such device here or this program cannot use it, or where it has
/// no cuDNN whose attention is demanded.
std::unique_ptr<Backend> open_backend(const OpenOptions& options);

}  // namespace ashlar::cuda
