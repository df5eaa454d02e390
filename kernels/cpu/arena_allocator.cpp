#include "kernels/cpu/arena_allocator.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "core/base/error.h"
#include "core/device/host_limits.h"

namespace ashlar::cpu {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kAlignment = 256;
constexpr int64_t kHugePage = 2 * kMiB;
constexpr int64_t kCommitStep = 64 * kMiB;
constexpr int64_t kFirstReserve = 32 * kMiB;
constexpr int64_t kLargestReserve = 1024 * kMiB;  // unless a request is larger

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// The size of a block for a request of `bytes`.
int64_t block_size(int64_t bytes) {
  ASHLAR_CHECK(bytes >= 0, "bytes = ", bytes);
  constexpr int64_t kSane = int64_t{1} << 50;  // smaller sizes can be rounded up without overflow; larger ones fail
  return bytes < kSane ? round_up(std::max<int64_t>(bytes, 1), kAlignment) : bytes;
}

}  // namespace

ArenaAllocator::ArenaAllocator(MemoryKind kind, int64_t cap_bytes, Blocks blocks)
    : kind_(kind), cap_bytes_(cap_bytes / kAlignment * kAlignment), blocks_(blocks) {
  ASHLAR_CHECK(cap_bytes >= 0, "cap_bytes = ", cap_bytes);
}

ArenaAllocator::~ArenaAllocator() {
  for (const Segment& segment : segments_) {
    if (segment.committed_bytes > 0) unpoison(segment.base, segment.committed_bytes);
    munmap(segment.base, static_cast<size_t>(segment.reserved_bytes));
  }
}

int64_t ArenaAllocator::high_water_bytes() const {
  int64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.high_water_bytes;
  return bytes;
}

// AddressSanitizer keeps a byte for eight: of address space without memory, that would be memory.
void ArenaAllocator::poison([[maybe_unused]] void* begin, [[maybe_unused]] int64_t bytes) const {
  if (blocks_ == Blocks::kMemory) ASAN_POISON_MEMORY_REGION(begin, static_cast<size_t>(bytes));
}

void ArenaAllocator::unpoison([[maybe_unused]] void* begin, [[maybe_unused]] int64_t bytes) const {
  if (blocks_ == Blocks::kMemory) ASAN_UNPOISON_MEMORY_REGION(begin, static_cast<size_t>(bytes));
}

bool ArenaAllocator::map_segment(int64_t bytes) {
  const int64_t whole = round_up(bytes, kHugePage);
  ++num_system_calls_;
  void* const range = mmap(nullptr, static_cast<size_t>(whole + kHugePage), PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return false;
  // Only recent Linux versions align mmap to huge pages. So the mapping is one huge page larger than needed, and its
  // unaligned ends are unmapped.
  char* const begin = static_cast<char*>(range);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(range));
  const int64_t skip = round_up(address, kHugePage) - address;
  if (skip > 0) munmap(begin, static_cast<size_t>(skip));
  munmap(begin + skip + whole, static_cast<size_t>(kHugePage - skip));
  // A failure is harmless: without huge pages only the first accesses are slower.
  madvise(begin + skip, static_cast<size_t>(whole), blocks_ == Blocks::kMemory ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  // The offset leaves a gap after the previous segment, so that blocks of two segments never merge.
  const int64_t offset = segments_.empty() ? 0 : segments_.back().end() + kAlignment;
  segments_.push_back({.base = begin + skip, .offset = offset, .reserved_bytes = whole});
  const int64_t usable = cap_bytes_ > 0 ? cap_bytes_ : whole;
  free_.emplace(offset, usable);
  return true;
}

void ArenaAllocator::add_segment(int64_t size, int64_t requested_bytes) {
  if (cap_bytes_ > 0) {
    if (size > cap_bytes_ || !segments_.empty()) {
      throw resource_error("memory", "out of memory for ", name_of(kind_), ": asked for ", requested_bytes,
                           " bytes with ", used_bytes_, " in use and a limit of ", cap_bytes_);
    }
    if (map_segment(cap_bytes_)) return;
  } else {
    check_left(size, requested_bytes);  // first, so that no address space is reserved for memory that the system lacks
    int64_t reserved = 0;
    for (const Segment& segment : segments_) reserved += segment.reserved_bytes;
    const int64_t more = std::clamp(reserved, kFirstReserve, kLargestReserve);
    if (map_segment(std::max(size, more)) || (size < more && map_segment(size))) return;
  }
  const int reason = errno;
  throw resource_error("memory", "out of memory for ", name_of(kind_), ": asked for ", requested_bytes, " bytes with ",
                       used_bytes_, " in use, the system refused to reserve address space (", std::strerror(reason),
                       "): ", memory_state_text());
}

void ArenaAllocator::check_left(int64_t bytes, int64_t requested_bytes) {
  if (blocks_ == Blocks::kAddresses) return;
  const int64_t left = memory_left_bytes();
  ++num_system_calls_;
  if (bytes <= left) return;
  throw resource_error("memory", "out of memory for ", name_of(kind_), ": asked for ", requested_bytes, " bytes with ",
                       used_bytes_, " in use, the system has ", left, " bytes left");
}

void ArenaAllocator::commit(Segment& segment, int64_t end_bytes, int64_t requested_bytes) {
  check_left(end_bytes - segment.committed_bytes, requested_bytes);
  const int64_t step = blocks_ == Blocks::kMemory ? kCommitStep : segment.reserved_bytes;
  const int64_t end = std::min(round_up(end_bytes, step), segment.reserved_bytes);
  const auto bytes = static_cast<size_t>(end - segment.committed_bytes);
  ++num_system_calls_;
  if (mprotect(segment.base + segment.committed_bytes, bytes, PROT_READ | PROT_WRITE) != 0) {
    const int reason = errno;
    throw resource_error("memory", "out of memory for ", name_of(kind_), ": asked for ", requested_bytes,
                         " bytes with ", used_bytes_, " in use, the system refused the memory (", std::strerror(reason),
                         "): ", memory_state_text());
  }
  poison(segment.base + segment.committed_bytes, end - segment.committed_bytes);
  segment.committed_bytes = end;
}

ArenaAllocator::Segment& ArenaAllocator::segment_at(int64_t offset) {
  const auto found = std::find_if(segments_.begin(), segments_.end(),
                                  [offset](const Segment& segment) { return offset < segment.end(); });
  ASHLAR_CHECK(found != segments_.end(), "offset = ", offset);
  return *found;
}

std::map<int64_t, int64_t>::iterator ArenaAllocator::committed_hole(int64_t size, int64_t requested_bytes) {
  const auto hole_for = [&] {
    return std::ranges::find_if(free_, [size](const auto& hole) { return hole.second >= size; });
  };
  auto hole = hole_for();
  if (hole == free_.end()) {
    add_segment(size, requested_bytes);
    hole = hole_for();
  }
  Segment& segment = segment_at(hole->first);
  const int64_t end = hole->first + size - segment.offset;
  if (end > segment.committed_bytes) commit(segment, end, requested_bytes);
  return hole;
}

void ArenaAllocator::reserve(int64_t bytes) { committed_hole(block_size(bytes), bytes); }

void* ArenaAllocator::allocate(int64_t bytes) {
  const int64_t size = block_size(bytes);
  const auto hole = committed_hole(size, bytes);
  const int64_t offset = hole->first;
  Segment& segment = segment_at(offset);
  const int64_t rest = hole->second - size;
  free_.erase(hole);
  if (rest > 0) free_.emplace(offset + size, rest);
  char* const block = segment.base + (offset - segment.offset);
  live_.emplace(block, Block{.offset = offset, .size = size});
  used_bytes_ += size;
  segment.high_water_bytes = std::max(segment.high_water_bytes, offset + size - segment.offset);
  unpoison(block, bytes);
  return block;
}

void ArenaAllocator::release(void* block) {
  if (block == nullptr) return;
  const auto found = live_.find(block);
  ASHLAR_CHECK(found != live_.end(), name_of(kind_), ": released a block that is not allocated");
  auto [offset, size] = found->second;
  live_.erase(found);
  used_bytes_ -= size;
  poison(block, size);
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
