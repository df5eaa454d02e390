#pragma once

#include <exception>

#include "core/device/stream.h"

namespace ashlar {

/// For destructors of memory that queued work may still use: the host waits for the event. If the device has failed,
/// nothing uses the memory and the error was reported to an earlier waiter, so it is ignored here. Null: no wait.
inline void wait_in_destructor(Event* event) noexcept {
  if (event == nullptr) return;
  try {
    event->synchronize();
  } catch (const std::exception&) {
    // Reported already.
  }
}

}  // namespace ashlar
