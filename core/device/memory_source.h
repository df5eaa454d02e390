#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/device/allocator.h"

namespace ashlar {

/// Where an allocator of a device gets its memory from, in the place of the driver.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Memory of the device aligned to 4096, or null where there is none of this kind: the driver is asked then.
  virtual void* take(int64_t bytes) = 0;
  virtual void give_back(void* memory) noexcept = 0;
};

/// What a backend whose allocators may be told so also is.
class TakesMemory {
 public:
  virtual ~TakesMemory() = default;
  /// From now on allocators of these kinds ask the source first.
  virtual void take_memory_from(std::shared_ptr<MemorySource> source, std::span<const MemoryKind> kinds) = 0;
};

}  // namespace ashlar
