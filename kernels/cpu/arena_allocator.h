#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "core/device/allocator.h"

namespace ashlar::cpu {

/// First-fit arena over address ranges that are reserved on demand, with huge pages if available. Blocks are allocated
/// at the lowest free offset that fits, 256-byte aligned; adjacent free blocks are merged. So in each range only the
/// bytes below its high-water offset are ever used. A request that fits in no range creates a new range, as large as
/// all earlier ranges together, but at least 32 MiB and at most 1 GiB, or as large as the request if the request is
/// larger. Memory is committed in steps of 64 MiB and returned to the system by the destructor only, so a training step
/// that allocates the same sizes as the step before makes no system call and no page fault. Free blocks are poisoned
/// under AddressSanitizer. Not thread-safe.
class ArenaAllocator final : public Allocator {
 public:
  /// kAddresses: blocks of the same sizes at the same offsets, but of address space for which the system sets nothing
  /// aside: a page takes memory when it is written. The system's memory does not limit them.
  enum class Blocks : uint8_t { kMemory, kAddresses };

  /// Reserves no address space yet. If `cap_bytes` > 0, it limits the size of the arena, which then has only one range.
  explicit ArenaAllocator(MemoryKind kind, int64_t cap_bytes = 0, Blocks blocks = Blocks::kMemory);
  ~ArenaAllocator() override;
  ArenaAllocator(const ArenaAllocator&) = delete;
  ArenaAllocator& operator=(const ArenaAllocator&) = delete;

  /// Throws resource_error (exit code 6) if a limit is reached: the cap, the system's free memory, or the process's
  /// address space. The message has the memory kind, the sizes and the limit.
  void* allocate(int64_t bytes) override;
  /// `block` must come from allocate; null is allowed and ignored.
  void release(void* block) override;
  /// Commits the memory. Counts no byte as used: pages take memory only when they are written.
  void reserve(int64_t bytes) override;

  int64_t used_bytes() const override { return used_bytes_; }
  int64_t high_water_bytes() const override;
  int64_t num_system_calls() const override { return num_system_calls_; }

 private:
  /// An address range. Its offsets in the arena begin after the last offset of the previous range, with a gap.
  struct Segment {
    char* base = nullptr;
    int64_t offset = 0;            // offset of `base` in the arena
    int64_t reserved_bytes = 0;    // size of the range
    int64_t committed_bytes = 0;   // size of the readable and writable prefix
    int64_t high_water_bytes = 0;  // the largest end of a block so far
    int64_t end() const { return offset + reserved_bytes; }
  };

  void add_segment(int64_t size, int64_t requested_bytes);  // adds a range with room for a block of `size`
  bool map_segment(int64_t bytes);                          // reserves an address range; false if the system refuses
  void commit(Segment& segment, int64_t end_bytes, int64_t requested_bytes);
  void check_left(int64_t bytes, int64_t requested_bytes);
  Segment& segment_at(int64_t offset);
  /// Returns the first free block of `size` bytes whose memory is committed.
  std::map<int64_t, int64_t>::iterator committed_hole(int64_t size, int64_t requested_bytes);
  void poison(void* begin, int64_t bytes) const;
  void unpoison(void* begin, int64_t bytes) const;

  MemoryKind kind_;
  int64_t cap_bytes_ = 0;  // 0 = no cap
  Blocks blocks_;
  std::vector<Segment> segments_;
  int64_t used_bytes_ = 0;
  int64_t num_system_calls_ = 0;
  std::map<int64_t, int64_t> free_;  // free blocks, offset -> size; adjacent ones are merged
  struct Block {
    int64_t offset = 0, size = 0;
  };
  std::unordered_map<const void*, Block> live_;
};

/// A block of memory that is released at the end of a scope, for the scratch memory of a kernel.
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
