// What a block tells its MemoryWatch: accesses of instrumented code, and those of intrinsics.
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {

using Kind = MemoryWatch::Kind;

void Block::watched_access(const MemoryWatch::Access& access, const void* return_address) {
  if (watch_ == nullptr) return;
  if (const std::optional<MemoryWatch::Fault> fault = watch_->access(*this, access, return_address)) {
    error_ = std::make_exception_ptr(error(fault->place, fault->text));
  } else {
    return;
  }
  Fiber::leave_for_good(*threads_[running_].fiber, *host_);
}

void Block::watch_access(const MemoryWatch::Access& access, int thread, Loc loc) {
  if (const std::optional<MemoryWatch::Fault> fault = watch_->access(*this, access, thread, loc)) {
    throw error(fault->place, fault->text);
  }
}

// At its start and at its end: the copy may happen at any time between them.
void Block::check_copy(const AsyncCopy& copy, Loc loc) {
  if (watch_ == nullptr) return;
  watch_access({.address = shared_.pointer(copy.to), .bytes = copy.bytes, .kind = Kind::kWrite}, running_, loc);
  if (copy.source_bytes == 0) return;
  watch_access({.address = copy.from,
                .bytes = copy.source_bytes,
                .kind = Kind::kRead,
                .width = MemoryWatch::Width::kParts},  // a part of it may have any size
               running_, loc);
}

void Block::ldmatrix_row(uint32_t address, int lane, Loc loc) {
  if (watch_ == nullptr) return;
  const int thread = running_ / 32 * 32 + lane;
  watch_access({.address = shared_.pointer(address), .bytes = 16, .kind = Kind::kRead}, thread, loc);
}

void Block::ldmatrix_passes(const std::array<uint32_t, 8>& rows) {
  if (watch_ != nullptr) watch_->count_matrix(rows);
}

void Block::fence() {
  if (watch_ != nullptr) watch_->races().fence(running_);
}

void Block::atomic(const void* address, int64_t bytes, Loc loc) {
  if (watch_ == nullptr) return;
  watch_->races().atomic(running_, reinterpret_cast<uintptr_t>(address));
  watch_access({.address = address, .bytes = bytes, .kind = Kind::kAtomic}, running_, loc);
  if (!shared_.contains(address)) watch_->traffic().count_atomic();
}

}  // namespace ashlar::emulator
