#include "tests/gpu_emulator/thread_clocks.h"

#include <algorithm>
#include <array>

namespace ashlar::emulator {

void ThreadClocks::begin_block(int num_threads) {
  if (num_threads != num_threads_) {
    num_threads_ = num_threads;
    rows_.assign(static_cast<int64_t>(num_threads) * num_threads, 0);
    times_.resize(num_threads);
    wide_.assign(num_threads, false);
  }
  row_epochs_.assign(num_threads, 0);
  epoch_ = 0;
  sync_block();
}

void ThreadClocks::sync_block() {
  ++epoch_;
  std::fill(times_.begin(), times_.end(), 1);
}

// A row that is not wide holds nothing but zeros for other warps.
uint32_t* ThreadClocks::fresh_row(int thread) {
  uint32_t* const times = row(thread);
  if (row_epochs_[thread] != epoch_) {
    row_epochs_[thread] = epoch_;
    const int first = wide_[thread] ? 0 : thread / 32 * 32, last = wide_[thread] ? num_threads_ : first + 32;
    std::fill(times + first, times + last, 0);
    wide_[thread] = false;
  }
  return times;
}

void ThreadClocks::sync_warp(int warp, uint32_t mask) {
  const int base = warp * 32;
  bool wide = false;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    fresh_row(base + lane);
    wide = wide || wide_[base + lane];
  }
  const int first = wide ? 0 : base, count = wide ? num_threads_ : 32;
  std::array<uint32_t, 1024> joined{};
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const uint32_t* const times = row(base + lane) + first;
    for (int i = 0; i < count; ++i) joined[i] = std::max(joined[i], times[i]);
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    uint32_t& own = joined[base + lane - first];
    own = std::max(own, times_[base + lane]++);
  }
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    std::copy_n(joined.begin(), count, row(base + lane) + first);
    wide_[base + lane] = wide;
  }
}

void ThreadClocks::release(int thread, Message& message) {
  if (message.epoch != epoch_ || std::ssize(message.times) != num_threads_) {
    message.epoch = epoch_;
    message.times.assign(num_threads_, 0);
  }
  if (const uint32_t* const times = known(thread)) {
    const int first = wide_[thread] ? 0 : thread / 32 * 32, last = wide_[thread] ? num_threads_ : first + 32;
    for (int i = first; i < last; ++i) message.times[i] = std::max(message.times[i], times[i]);
  }
  message.times[thread] = std::max(message.times[thread], times_[thread]++);
}

void ThreadClocks::acquire(int thread, const Message& message) {
  ++times_[thread];  // what was found out before about this thread's knowledge no longer holds
  if (message.epoch != epoch_) return;
  uint32_t* const times = fresh_row(thread);
  wide_[thread] = true;
  for (int i = 0; i < num_threads_; ++i) times[i] = std::max(times[i], message.times[i]);
}

}  // namespace ashlar::emulator
