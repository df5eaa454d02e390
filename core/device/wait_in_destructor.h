#pragma once

#include <exception>

#include "core/device/stream.h"

namespace ashlar {

/// Makes the host wait for the event (null: does nothing), in the destructor of memory that queued work may still use.
/// If the device has failed, nothing uses the memory, and the error was reported by an earlier wait, so it is ignored
/// here.
inline void wait_in_destructor(Event* event) noexcept {
  if (event == nullptr) return;
  try {
    event->synchronize();
  } catch (const std::exception&) {
    // Reported already.
  }
}

}  // namespace ashlar
