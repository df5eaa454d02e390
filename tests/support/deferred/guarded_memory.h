#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/device/allocator.h"

namespace ashlar::testing {

/// Address space that the host may touch only while it is open. A touch of closed memory ends the process with a line
/// that says what is known about the place. One region at a time.
class GuardedRegion {
 public:
  GuardedRegion(int64_t bytes, std::function<std::string(const void*)> describe);
  GuardedRegion(const GuardedRegion&) = delete;
  GuardedRegion& operator=(const GuardedRegion&) = delete;
  ~GuardedRegion();

  void open();
  void close();
  /// First fit, so that the same calls give the same addresses.
  void* allocate(int64_t bytes);
  void release(void* block);
  int64_t used_bytes() const { return used_; }
  int64_t high_water_bytes() const { return high_water_; }
  uint64_t take_hash();

  bool holds(const void* at) const { return at >= base_ && at < base_ + bytes_; }
  std::string describe(const void* at) const { return describe_(at); }

 private:
  char* base_;
  int64_t bytes_;
  std::map<int64_t, int64_t> taken_;  ///< offset -> bytes
  int64_t used_ = 0, high_water_ = 0;
  uint64_t hash_ = 0;
  bool open_ = true;
  std::function<std::string(const void*)> describe_;
  void* stack_;  ///< of the handler
  stack_t stack_before_{};
};

/// A kind of memory in a region.
class GuardedAllocator final : public Allocator {
 public:
  explicit GuardedAllocator(GuardedRegion& region) : region_(region) {}
  void* allocate(int64_t bytes) override;
  void release(void* block) override;
  int64_t used_bytes() const override { return used_; }
  int64_t high_water_bytes() const override { return high_water_; }
  int64_t num_system_calls() const override { return 0; }

 private:
  GuardedRegion& region_;
  std::map<void*, int64_t> blocks_;
  int64_t used_ = 0, high_water_ = 0;
};

}  // namespace ashlar::testing
