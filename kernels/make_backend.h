#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/backend/backend.h"
#include "core/base/log.h"
#include "kernels/cuda/attention/cudnn_contract.h"

namespace ashlar::kernels {

/// Selects a backend and its limits.
struct BackendConfig {
  /// "cpu": the host's own cores; "cuda": an NVIDIA GPU
  std::string device = "cpu";
  int local_rank = 0;            ///< cuda: index of the rank on this machine, and of its GPU among the visible ones
  int threads = 0;               ///< cpu: number of threads; 0 = every core that this process may use
  std::string max_isa;           ///< cpu: limit, one of "baseline", "avx2", "avx512", "avx512_bf16"; empty = the best
  Log* log = nullptr;            ///< notices about the device's capabilities; null = silent. Must outlive the backend.
  int64_t max_memory_bytes = 0;  ///< cpu: per memory kind; cuda: in total; 0 = no limit
  AttentionKernels attention =
      AttentionKernels::kOwn;  ///< cuda: implementation of attention; all but kOwn need its Tuner
};

/// The entry point to a backend. Throws input_error for a device that this program does not support and for bad
/// options.
std::unique_ptr<Backend> make_backend(const BackendConfig& config = {});

/// The number of cores of this machine that the process may use.
int usable_cores();

}  // namespace ashlar::kernels
