#pragma once

#include <chrono>

namespace ashlar::training {

/// Monotonic clock, in seconds.
inline double now_sec() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Wall clock: seconds since 1970.
inline double unix_sec() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ashlar::training
