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
  std::string device = "cpu";  ///< "cpu" = the cores of the host, "cuda" = an NVIDIA GPU
  int local_rank = 0;          ///< cuda: index of this rank on its machine, and of its GPU among the visible GPUs
  int threads = 0;             ///< cpu: number of threads; 0 = every core that this process may use
  /// cpu: the highest instruction set that kernels may use: "baseline", "avx2", "avx512" or "avx512_bf16"; empty = the
  /// fastest that the CPU has
  std::string max_isa;
  Log* log = nullptr;            ///< receives notices about the device; null = no notices. Must outlive the backend.
  int64_t max_memory_bytes = 0;  ///< limit for each memory kind (cpu) or for all kinds together (cuda); 0 = no limit
  AttentionKernels attention =
      AttentionKernels::kOwn;  ///< cuda: attention kernels; for kAuto and kCudnn the backend's Tuner makes the choice
};

/// Makes a backend. Throws input_error for a device that this program does not support and for bad options.
std::unique_ptr<Backend> make_backend(const BackendConfig& config = {});

/// Returns the number of cores of this machine that the process may use.
int usable_cores();

}  // namespace ashlar::kernels
