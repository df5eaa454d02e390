#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "core/device/allocator.h"

namespace ashlar::cpu {

/// First-fit arena over one reserved range of addresses, huge pages asked for.
/// Blocks are handed out at the lowest free offset that holds them, 256-byte aligned, and merged when released, so the
/// high-water offset is what the arena has made resident. Memory is committed in steps of 64 MiB and never given back
/// before destruction: a step that repeats its sizes makes no system call and no page fault.
/// Free blocks are poisoned under AddressSanitizer. Not thread-safe.
class ArenaAllocator final : public Allocator {
 public:
  /// Reserves addresses only. `cap_bytes` > 0 limits the arena below the reserved range.
  explicit ArenaAllocator(MemoryKind kind, int64_t cap_bytes = 0);
  ~ArenaAllocator() override;
  ArenaAllocator(const ArenaAllocator&) = delete;
  ArenaAllocator& operator=(const ArenaAllocator&) = delete;

  /// Throws resource_error (exit 6) with kind, sizes and what to do when the range, cap or system is exhausted.
  void* allocate(int64_t bytes) override;
  /// `block` must come from allocate; null is allowed and ignored.
  void release(void* block) override;

  int64_t used_bytes() const override { return used_bytes_; }
  int64_t high_water_bytes() const override { return high_water_bytes_; }
  int64_t num_system_calls() const override { return num_system_calls_; }

 private:
  void commit(int64_t end_offset, int64_t requested_bytes);

  MemoryKind kind_;
  char* base_ = nullptr;
  int64_t reserved_bytes_ = 0;   // addresses
  int64_t limit_bytes_ = 0;      // the most that may be committed
  int64_t committed_bytes_ = 0;  // readable and writable prefix
  int64_t used_bytes_ = 0;
  int64_t high_water_bytes_ = 0;
  int64_t num_system_calls_ = 0;
  std::map<int64_t, int64_t> free_;            // offset -> size, coalesced, never adjacent
  std::unordered_map<int64_t, int64_t> live_;  // offset -> size
};

/// A block of an allocator for the length of a scope: scratch space of a kernel.
class ScopedBlock {
 public:
  ScopedBlock(Allocator& allocator, int64_t bytes) : allocator_(allocator), data_(allocator.allocate(bytes)) {}
  ~ScopedBlock() { allocator_.release(data_); }
  ScopedBlock(const ScopedBlock&) = delete;
  ScopedBlock& operator=(const ScopedBlock&) = delete;

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Allocator& allocator_;
  void* data_;
};

}  // namespace ashlar::cpu
