#pragma once

#include <cstdint>
#include <vector>

#include "tests/gpu_emulator/emulator.h"

namespace ashlar::emulator {

/// Random words of a seed (splitmix64): the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (int64_t i = std::ssize(items) - 1; i > 0; --i) std::swap(items[i], items[below(i + 1)]);
  }

 private:
  uint64_t state_;
};

/// The blocks of a grid in the order in which the policy runs them.
std::vector<int64_t> block_order(int64_t num_blocks, Policy policy, Random& random);

/// Which thread of a block runs next: those that have not begun, and those that wait for nothing any more.
class Scheduler {
 public:
  void begin_block(int num_threads, Policy policy, Random& random);

  /// The thread can go on.
  void make_ready(int thread);
  /// Takes the next thread out; -1 when none can run.
  int take();

 private:
  int take_new() { return not_begun_[next_new_++]; }
  int64_t num_new() const { return std::ssize(not_begun_) - next_new_; }
  int take_random();
  int take_first_priority();
  bool lower(int a, int b) const { return priority_[a] < priority_[b]; }

  Policy policy_ = Policy::kFifo;
  Random random_{0};
  std::vector<int> not_begun_;  // in the order in which they begin
  int64_t next_new_ = 0;
  std::vector<int> ready_;  // a queue from first_ready_ (kFifo), a stack, a bag or a heap (kPct)
  int64_t first_ready_ = 0;
  std::vector<uint64_t> priority_;  // of kPct
  uint64_t lowest_priority_ = 0;
};

}  // namespace ashlar::emulator
