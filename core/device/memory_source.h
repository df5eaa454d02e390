#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/device/allocator.h"

namespace ashlar {

/// A source of device memory that an allocator uses instead of the driver.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Returns device memory aligned to 4096 bytes, or null if the source has none left; the allocator then asks the
  /// driver.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

/// Interface of backends whose allocators support memory sources.
class HasMemorySource {
 public:
  virtual ~HasMemorySource() = default;
  /// Makes the allocators of these kinds ask the source for memory before they ask the driver.
  virtual void set_memory_source(std::shared_ptr<MemorySource> source, std::span<const MemoryKind> kinds) = 0;
};

}  // namespace ashlar
