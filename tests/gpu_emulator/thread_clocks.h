#pragma once

#include <cstdint>
#include <vector>

namespace ashlar::emulator {

/// What each thread of a block knows of the others' past (vector clocks): __syncthreads starts a new epoch, in which
/// everybody knows all before it; within an epoch a thread has a time of its own, and the times of others that reached
/// it through __syncwarp, named barriers and mbarriers.
class ThreadClocks {
 public:
  /// What was made known to a barrier: the times of all threads, in an epoch.
  struct Message {
    uint32_t epoch = 0;
    std::vector<uint32_t> times;
  };

  void begin_block(int num_threads);

  uint32_t epoch() const { return epoch_; }
  uint32_t time(int thread) const { return times_[thread]; }
  /// Whether what `other` did then has happened before what `thread` does now.
  bool knows(int thread, int other, uint32_t epoch, uint32_t time) const {
    if (thread == other || epoch < epoch_) return true;
    return row_epochs_[thread] == epoch_ && row(thread)[other] >= time;
  }
  /// The times that a thread knows, or null when it knows none of this epoch.
  const uint32_t* known(int thread) const { return row_epochs_[thread] == epoch_ ? row(thread) : nullptr; }

  void sync_block();
  void sync_warp(int warp, uint32_t mask);
  /// The thread's past goes into the message; what it does next does not.
  void release(int thread, Message& message);
  void acquire(int thread, const Message& message);
  /// What the thread does from now on is later than all before.
  void advance(int thread) { ++times_[thread]; }

 private:
  const uint32_t* row(int thread) const { return rows_.data() + static_cast<int64_t>(thread) * num_threads_; }
  uint32_t* row(int thread) { return rows_.data() + static_cast<int64_t>(thread) * num_threads_; }
  uint32_t* fresh_row(int thread);  // of this epoch

  int num_threads_ = 0;
  uint32_t epoch_ = 0;
  std::vector<uint32_t> times_;
  std::vector<uint32_t> rows_;  // [threads, threads]
  std::vector<uint32_t> row_epochs_;
  std::vector<bool> wide_;  // the row holds times of other warps
};

}  // namespace ashlar::emulator
