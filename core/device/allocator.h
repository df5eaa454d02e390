#pragma once

#include <cstdint>
#include <string_view>

namespace ashlar {

/// What memory is for: of the device, but for kPinned, host memory that copies to and from the device use. Each kind
/// has its own allocator, so that a run's memory can be named in full.
enum class MemoryKind : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kWorkspace, kPinned };
inline constexpr int kNumMemoryKinds = 6;
std::string_view name_of(MemoryKind kind);

/// Device memory. Not thread-safe: one thread allocates.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least `bytes` bytes aligned to 256; never null. Content is garbage. Throws resource_error when memory is out.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) = 0;

  virtual int64_t used_bytes() const = 0;        ///< handed out now
  virtual int64_t high_water_bytes() const = 0;  ///< the most of the device ever touched by this allocator
  virtual int64_t num_system_calls()
      const = 0;  ///< how often the system was asked for memory; constant in a steady step
};

}  // namespace ashlar
