#pragma once

#include <exception>

#include "core/device/stream.h"

namespace ashlar {

/// For the destructor of memory that queued work may still use: makes the host wait for the event; does nothing if
/// `event` is null. An error of the device is ignored: a failed device no longer uses the memory, and an earlier wait
/// has reported the error.
inline void wait_in_destructor(Event* event) noexcept {
  if (event == nullptr) return;
  try {
    event->synchronize();
  } catch (const std::exception&) {
    // An earlier wait has reported the error.
  }
}

}  // namespace ashlar
