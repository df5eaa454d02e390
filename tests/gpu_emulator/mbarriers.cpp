// mbarrier: phases that end when all arrivals and all expected bytes have come.
#include <utility>

#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {

Block::Mbarrier& Block::mbarrier_at(uint32_t address, Loc loc) {
  const auto found = mbarriers_.find(address);
  if (found == mbarriers_.end()) fault(str_cat("no mbarrier at shared address ", address, ": mbarrier.init it"), loc);
  return found->second;
}

void Block::mbarrier_init(uint32_t address, int arrivals, Loc loc) {
  shared_pointer(address, 8, 8, loc);
  constexpr int kMaxArrivals = (1 << 20) - 1;
  if (arrivals < 1 || arrivals > kMaxArrivals) {
    fault(str_cat("mbarrier.init with ", arrivals, " arrivals: expected 1 to ", kMaxArrivals), loc);
  }
  Mbarrier& barrier = mbarriers_[address];
  if (!barrier.waiting.empty()) fault(str_cat(barrier.waiting.size(), " threads wait at this mbarrier"), loc);
  barrier = {};
  barrier.arrivals = barrier.missing = arrivals;
}

void Block::mbarrier_arrive(uint32_t address, int arrivals, int64_t bytes, Loc loc) {
  Mbarrier& barrier = mbarrier_at(address, loc);
  if (barrier.missing < arrivals) {
    fault(str_cat("more arrivals at an mbarrier than the ", barrier.arrivals, " of its phase"), loc);
  }
  if (watch_ != nullptr) watch_->races().release(running_, barrier.past);
  barrier.bytes += bytes;
  barrier.missing -= arrivals;
  if (barrier.missing > 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.last_past = std::exchange(barrier.past, {});
  barrier.missing = barrier.arrivals;
  for (const int thread : barrier.waiting) make_ready(thread);
  barrier.waiting.clear();
  let_others_run(loc);
}

void Block::mbarrier_wait(uint32_t address, int parity, Loc loc) {
  Mbarrier& barrier = mbarrier_at(address, loc);
  while (barrier.phase == (parity & 1)) {
    barrier.waiting.push_back(running_);
    wait("a wait for an mbarrier", loc);
  }
  if (watch_ != nullptr) watch_->races().acquire(running_, barrier.last_past);
}

}  // namespace ashlar::emulator
