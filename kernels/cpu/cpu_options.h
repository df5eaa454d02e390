#pragma once

#include <cstdint>
#include <string>

#include "core/base/log.h"

namespace ashlar::cpu {

/// Options of a CpuBackend.
struct CpuOptions {
  int threads = 0;              ///< number of threads; 0 = every core that this process may use
  Log* log = nullptr;           ///< receives notices about the CPU; null = no notices. Must outlive the backend.
  std::string max_isa;          ///< see detect_cpu in cpu_info.h; empty = the best available
  int64_t arena_cap_bytes = 0;  ///< limit in bytes for each memory kind; 0 = only the system's memory limits it
  /// Calls allocate what they need and skip their work; blocks are address space that takes memory where it is written.
  bool dry_run = false;
};

}  // namespace ashlar::cpu
