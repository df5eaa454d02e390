#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/base/log.h"
#include "kernels/cuda/attention/cudnn_contract.h"

namespace ashlar::kernels {

/// What computes, and with how much of it.
struct BackendConfig {
  /// "cpu": the host's own cores; "cuda": an NVIDIA GPU
  std::string device = "cpu";
  int local_rank = 0;            ///< cuda: among the ranks on this machine; it takes that one of the visible GPUs
  int threads = 0;               ///< of the cpu; 0 = every core that this process may use
  std::string max_isa;           ///< of the cpu: most of "baseline", "avx2", "avx512", "avx512_bf16"; empty = the best
  Log* log = nullptr;            ///< notices about what the device can do; null = silent. Must outlive the backend.
  int64_t max_memory_bytes = 0;  ///< cpu: of each memory kind; cuda: of all; 0 = what the device has
  AttentionKernels attention = AttentionKernels::kOwn;  ///< of cuda: whose; all but kOwn needs its Tuner
};

/// The one door to a backend. Throws input_error for a device that this program does not have and for bad options.
std::unique_ptr<Backend> make_backend(const BackendConfig& config = {});

/// How many cores of this machine the process may use.
int usable_cores();

}  // namespace ashlar::kernels
