// Barriers of threads: __syncthreads and its forms, bar.sync and bar.arrive.
#include "core/base/strings.h"
#include "tests/gpu_emulator/block.h"

namespace ashlar::emulator {

// Counts the running thread. The last one lets the others go on.
void Block::arrive(Barrier& barrier, const char* what, int expected, bool wait_too, Loc loc) {
  const bool named = &barrier != &barriers_[0];
  if (watch_ != nullptr && named) watch_->races().release(running_, barrier.past);
  if (barrier.arrived == 0) {
    barrier.loc = loc;
    barrier.expected = expected;
  }
  if (++barrier.arrived < barrier.expected) {
    if (!wait_too) return;
    barrier.waiting.push_back(running_);
    wait(what, loc);
    return;
  }
  barrier.last_votes = barrier.votes;
  barrier.last_count = barrier.arrived;
  barrier.votes = 0;
  barrier.arrived = 0;
  if (watch_ != nullptr && named) {
    if (wait_too) watch_->races().acquire(running_, barrier.past);
    for (const int thread : barrier.waiting) watch_->races().acquire(thread, barrier.past);
    barrier.past = {};
  } else if (watch_ != nullptr) {
    watch_->races().sync_block();
  }
  for (const int thread : barrier.waiting) make_ready(thread);
  barrier.waiting.clear();
  let_others_run(loc);
}

int Block::sync_threads(Vote vote, int value, Loc loc) {
  Barrier& barrier = barriers_[0];
  const int num_threads = static_cast<int>(threads_.size());
  if (alive_ < num_threads) {
    fault(str_cat("__syncthreads after ", num_threads - alive_,
                  " threads of the block have ended: all threads must come to it"),
          loc);
  }
  if (barrier.arrived > 0 && !(barrier.loc == loc)) {
    fault(str_cat("divergent barrier: this thread is at ", loc.text(), ", ", barrier.arrived, " others wait at ",
                  barrier.loc.text(), ": all threads of a block must come to the same __syncthreads"),
          loc);
  }
  barrier.votes += static_cast<int>(value != 0);
  arrive(barrier, "__syncthreads", num_threads, /*wait_too=*/true, loc);
  switch (vote) {
    case Vote::kNone: break;
    case Vote::kAny: return static_cast<int>(barrier.last_votes > 0);
    case Vote::kAll: return static_cast<int>(barrier.last_votes == barrier.last_count);
    case Vote::kCount: return barrier.last_votes;
  }
  return 0;
}

void Block::named_barrier(int id, int threads, bool wait_too, Loc loc) {
  if (id < 1 || id > 15) fault(str_cat("barrier ", id, ": 1 to 15 may be named, 0 is __syncthreads"), loc);
  const int num_threads = static_cast<int>(threads_.size());
  if (threads < 32 || threads % 32 != 0 || threads > num_threads) {
    fault(str_cat("barrier ", id, " of ", threads, " threads: expected a multiple of 32 up to ", num_threads), loc);
  }
  Barrier& barrier = barriers_[id];
  if (barrier.arrived > 0 && barrier.expected != threads) {
    fault(str_cat("barrier ", id, " is of ", threads, " threads here and of ", barrier.expected, " at ",
                  barrier.loc.text()),
          loc);
  }
  arrive(barrier, "bar.sync", threads, wait_too, loc);
}

}  // namespace ashlar::emulator
