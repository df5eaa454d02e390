#pragma once

#include <cstdint>

#include "core/base/enum_names.h"

namespace ashlar {

/// Purpose of memory. All kinds are device memory, except kPinned, which is host memory for copies to and from the
/// device. Each kind has its own allocator, so that a report covers all memory of a run.
enum class MemoryKind : uint8_t { kParameters, kGradients, kOptimizer, kActivations, kWorkspace, kPinned };
constexpr auto names_of(MemoryKind) {
  return enum_names<MemoryKind>("parameters", "gradients", "optimizer", "activations", "workspace", "pinned");
}
inline constexpr int kNumMemoryKinds = names_of(MemoryKind{}).size();

/// Device memory. Not thread-safe: one thread allocates.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Returns at least `bytes` bytes, aligned to 256; never null. The content is undefined. Throws resource_error when
  /// out of memory.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) = 0;

  virtual int64_t used_bytes() const = 0;        ///< currently allocated
  virtual int64_t high_water_bytes() const = 0;  ///< the most device memory ever used by this allocator
  virtual int64_t num_system_calls() const = 0;  ///< number of system allocations; constant in steady state
};

}  // namespace ashlar
