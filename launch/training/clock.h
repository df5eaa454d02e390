#pragma once

#include <chrono>

namespace ashlar::training {

/// Of a clock that never goes back.
inline double now_sec() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ashlar::training
