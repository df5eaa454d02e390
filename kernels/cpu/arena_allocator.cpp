#include "kernels/cpu/arena_allocator.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "core/base/error.h"

namespace ashlar::cpu {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePage = 2 * kMiB;
constexpr int64_t kCommitStep = 64 * kMiB;
constexpr int64_t kLargestReserve = int64_t{256} << 30;
constexpr int64_t kSmallestReserve = 64 * kMiB;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// The first number in `path` after `key` (or at its start), times `unit`; INT64_MAX when there is none.
int64_t read_bytes(const char* path, const std::string& key, int64_t unit) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    int64_t value = 0;
    bool found = false;
    for (const char c : line.substr(key.size())) {
      if (c >= '0' && c <= '9') {
        value = value * 10 + (c - '0');
        found = true;
      } else if (found) {
        break;
      }
    }
    if (found) return value * unit;
  }
  return std::numeric_limits<int64_t>::max();
}

/// What the system can still back. Linux hands out addresses beyond it and kills the process at the first touch, so it
/// is asked before memory is promised.
int64_t available_bytes() {
  return std::min(read_bytes("/proc/meminfo", "MemAvailable:", 1024), read_bytes("/sys/fs/cgroup/memory.max", "", 1));
}

}  // namespace

ArenaAllocator::ArenaAllocator(MemoryKind kind, int64_t cap_bytes) : kind_(kind) {
  ASHLAR_CHECK(cap_bytes >= 0, "cap_bytes = ", cap_bytes);
  void* range = MAP_FAILED;
  for (int64_t bytes = kLargestReserve; bytes >= kSmallestReserve && range == MAP_FAILED; bytes /= 2) {
    range = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ++num_system_calls_;
    reserved_bytes_ = bytes;
  }
  if (range == MAP_FAILED) {
    throw resource_error("memory", "cannot reserve ", kSmallestReserve / kMiB, " MiB of addresses for ", name_of(kind_),
                         ": ", std::strerror(errno), "; raise the limit shown by `ulimit -v`");
  }
  base_ = static_cast<char*>(range);
  // mmap aligns ranges of this size to huge pages on current kernels only; the first block must start on one.
  const int64_t skip = round_up(static_cast<int64_t>(reinterpret_cast<uintptr_t>(base_)), kHugePage) -
                       static_cast<int64_t>(reinterpret_cast<uintptr_t>(base_));
  if (skip > 0) {
    munmap(base_, static_cast<size_t>(skip));
    base_ += skip;
    reserved_bytes_ -= skip;
    ++num_system_calls_;
  }
  // Advice only: without huge pages everything works, first touches are slower.
  madvise(base_, static_cast<size_t>(reserved_bytes_), MADV_HUGEPAGE);
  ++num_system_calls_;
  limit_bytes_ = cap_bytes > 0 ? std::min(cap_bytes / kAlignment * kAlignment, reserved_bytes_) : reserved_bytes_;
  if (limit_bytes_ > 0) free_.emplace(0, limit_bytes_);
}

ArenaAllocator::~ArenaAllocator() {
  if (committed_bytes_ > 0) ASAN_UNPOISON_MEMORY_REGION(base_, static_cast<size_t>(committed_bytes_));
  munmap(base_, static_cast<size_t>(reserved_bytes_));
}

void ArenaAllocator::commit(int64_t end_offset, int64_t requested_bytes) {
  const int64_t end = std::min(round_up(end_offset, kCommitStep), round_up(limit_bytes_, kHugePage));
  const int64_t bytes = std::min(end, reserved_bytes_) - committed_bytes_;
  const int64_t available = available_bytes();
  const bool fits = end_offset - committed_bytes_ <= available;
  num_system_calls_ += 2;
  if (!fits || mprotect(base_ + committed_bytes_, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE) != 0) {
    throw resource_error("memory", "out of memory for ", name_of(kind_), ": asked for ", requested_bytes,
                         " bytes with ", used_bytes_, " in use, the system has ", available, " left");
  }
  ASAN_POISON_MEMORY_REGION(base_ + committed_bytes_, static_cast<size_t>(bytes));
  committed_bytes_ += bytes;
}

void* ArenaAllocator::allocate(int64_t bytes) {
  ASHLAR_CHECK(bytes >= 0, "bytes = ", bytes);
  const bool sane = bytes <= limit_bytes_;
  const int64_t size = sane ? round_up(std::max<int64_t>(bytes, 1), kAlignment) : bytes;
  auto hole = free_.begin();
  while (hole != free_.end() && hole->second < size) ++hole;
  if (!sane || hole == free_.end()) {
    throw resource_error("memory", "out of memory for ", name_of(kind_), ": asked for ", bytes, " bytes with ",
                         used_bytes_, " in use and a limit of ", limit_bytes_);
  }
  const int64_t offset = hole->first;
  const int64_t end = offset + size;
  if (end > committed_bytes_) commit(end, bytes);
  const int64_t rest = hole->second - size;
  free_.erase(hole);
  if (rest > 0) free_.emplace(end, rest);
  live_.emplace(offset, size);
  used_bytes_ += size;
  high_water_bytes_ = std::max(high_water_bytes_, end);
  ASAN_UNPOISON_MEMORY_REGION(base_ + offset, static_cast<size_t>(bytes));
  return base_ + offset;
}

void ArenaAllocator::release(void* block) {
  if (block == nullptr) return;
  const auto found = live_.find(static_cast<char*>(block) - base_);
  ASHLAR_CHECK(found != live_.end(), name_of(kind_), ": released a block that is not live");
  int64_t offset = found->first;
  int64_t size = found->second;
  live_.erase(found);
  used_bytes_ -= size;
  ASAN_POISON_MEMORY_REGION(block, static_cast<size_t>(size));
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, size);
}

}  // namespace ashlar::cpu
