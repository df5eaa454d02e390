#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar {

/// The purpose for which memory is allocated. All kinds are device memory, except kPinned, which is host memory for
/// copies to and from the device. Each kind has its own allocator, so that reports can list a run's memory by kind.
enum class MemoryKind : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kWorkspace, kPinned };
constexpr auto names_of(MemoryKind) {
  return enum_names<MemoryKind>("parameters", "gradients", "optimizer", "activations", "workspace", "pinned");
}
inline constexpr int kNumMemoryKinds = names_of(MemoryKind{}).size();

/// Allocates memory of one MemoryKind. Not thread-safe: only one thread may allocate.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Returns at least `bytes` bytes, aligned to 256 bytes; never null. The content is undefined. Throws a
  /// resource_error if memory runs out.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) = 0;
  /// Takes from the system what an allocation of `bytes` bytes needs now, and keeps it for later allocations. Throws
  /// like allocate.
  virtual void reserve(int64_t bytes) { release(allocate(bytes)); }

  virtual int64_t used_bytes() const = 0;        ///< number of bytes currently allocated
  virtual int64_t high_water_bytes() const = 0;  ///< maximum number of bytes that this allocator has used so far
  virtual int64_t num_system_calls() const = 0;  ///< number of allocations from the system; constant in steady state
};

}  // namespace ashlar
