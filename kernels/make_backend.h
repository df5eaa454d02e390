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

/// Options of a dry run: no value is computed, so it is told which experts the tokens choose.
struct DryRunConfig {
  std::string device = "cpu";  ///< as in BackendConfig
  int threads = 1;
  int64_t experts = 0;  ///< of a layer; 0: none has experts
  /// Experts [loaded_begin, loaded_end) together get `load` times their even share of the choices, at most as many as
  /// the tokens can make of them. The other choices are even. Equal numbers: all choices are even.
  int64_t loaded_begin = 0, loaded_end = 0;
  double load = 1;
};

/// Makes a backend on which code finds out how much memory it needs. It allocates as the real one does, scratch of the
/// kernels included, but computes nothing and takes no memory: blocks are address space. Needs no GPU. For "cuda" the
/// scratch of the kernels is that of the matrix products; cuDNN's workspace is not known without the library.
std::unique_ptr<Backend> make_dry_backend(const DryRunConfig& config);

/// Returns the number of cores of this machine that the process may use.
int usable_cores();

}  // namespace ashlar::kernels
