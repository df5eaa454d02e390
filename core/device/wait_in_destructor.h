#pragma once

#include <exception>

#include "core/device/stream.h"

namespace ashlar {

/// For destructors whose memory queued work may still use: the host waits until the event is reached. Where the device
/// has failed nothing uses it any more, and its error is said by whoever waited first: none comes from here. Null:
/// nothing.
inline void wait_in_destructor(Event* event) noexcept {
  if (event == nullptr) return;
  try {
    event->synchronize();
  } catch (const std::exception&) {
    // said already
  }
}

}  // namespace ashlar
