#pragma once

#include <cstdint>
#include <string>

#include "core/base/log.h"

namespace ashlar::cpu {

/// Options of a CpuBackend.
struct CpuOptions {
  int threads = 0;              ///< 0 = every core that this process may use
  Log* log = nullptr;           ///< capability notices; null = silent. Must outlive the backend.
  std::string max_isa;          ///< see detect_cpu in cpu_info.h; empty = the best available
  int64_t arena_cap_bytes = 0;  ///< limit per memory kind; 0 = the system's memory
};

}  // namespace ashlar::cpu
