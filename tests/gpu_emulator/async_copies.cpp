// cp.async as late as it may be: what a copy writes is NaN from its start on and comes when its thread waits for it.
#include <cstring>

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {

void Block::cp_async(const AsyncCopy& copy, Loc loc) {
  char* const to = shared_pointer(copy.to, copy.bytes, copy.bytes, loc);
  if (copy.source_bytes < 0 || copy.source_bytes > copy.bytes) {
    fault(str_cat("cp.async of ", copy.bytes, " bytes takes ", copy.source_bytes, " from its source"), loc);
  }
  if (copy.source_bytes > 0 && reinterpret_cast<uintptr_t>(copy.from) % static_cast<unsigned>(copy.bytes) != 0) {
    fault(str_cat("the source of a cp.async of ", copy.bytes, " bytes is not aligned to them"), loc);
  }
  check_copy(copy, loc);
  if (watch_ != nullptr) {
    const MemoryWatch::Access read{.address = copy.from, .bytes = copy.source_bytes, .kind = MemoryWatch::Kind::kRead};
    if (copy.source_bytes > 0) watch_->count(*this, read, loc);
    watch_->count(*this, {.address = to, .bytes = copy.bytes, .kind = MemoryWatch::Kind::kWrite}, loc);
  }
  std::memset(to, 0xff, copy.bytes);
  Thread& thread = threads_[running_];
  thread.copies.push_back({copy, loc});
  ++thread.uncommitted;
}

void Block::finish(const StartedCopy& started) {
  const AsyncCopy& copy = started.copy;
  check_copy(copy, started.loc);
  char* const to = shared_.pointer(copy.to);
  if (copy.source_bytes > 0) std::memcpy(to, copy.from, copy.source_bytes);
  std::memset(to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

void Block::cp_async_commit_group() {
  Thread& thread = threads_[running_];
  thread.groups.push_back(std::exchange(thread.uncommitted, 0));
}

void Block::cp_async_wait(int pending, bool uncommitted_too, Loc loc) {
  if (pending < 0) fault(str_cat("cp.async.wait_group ", pending), loc);
  Thread& thread = threads_[running_];
  int64_t done = 0;
  const int64_t groups = std::max<int64_t>(std::ssize(thread.groups) - pending, 0);
  for (int64_t i = 0; i < groups; ++i) done += thread.groups[i];
  thread.groups.erase(thread.groups.begin(), thread.groups.begin() + groups);
  if (uncommitted_too) done += std::exchange(thread.uncommitted, 0);
  for (int64_t i = 0; i < done; ++i) finish(thread.copies[i]);
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + done);
}

}  // namespace ashlar::emulator
