#include "tests/gpu_emulator/scheduler.h"

#include <algorithm>
#include <numeric>

namespace ashlar::emulator {

const char* policy_name(Policy policy) {
  switch (policy) {
    case Policy::kFifo: return "fifo";
    case Policy::kLifo: return "lifo";
    case Policy::kRandom: return "random";
    case Policy::kPct: return "pct";
  }
  return "?";
}

std::vector<int64_t> block_order(int64_t num_blocks, Policy policy, Random& random) {
  std::vector<int64_t> order(num_blocks);
  std::iota(order.begin(), order.end(), int64_t{0});
  if (policy == Policy::kLifo) std::reverse(order.begin(), order.end());
  if (policy == Policy::kRandom || policy == Policy::kPct) random.shuffle(order);
  return order;
}

void Scheduler::begin_block(int num_threads, Policy policy, Random& random) {
  policy_ = policy;
  random_ = Random(random.next());
  ready_.clear();
  first_ready_ = 0;
  next_new_ = 0;
  not_begun_.resize(num_threads);
  std::iota(not_begun_.begin(), not_begun_.end(), 0);
  if (policy == Policy::kLifo) std::reverse(not_begun_.begin(), not_begun_.end());
  if (policy == Policy::kRandom) random_.shuffle(not_begun_);
  if (policy == Policy::kPct) {
    // A warp's threads stay together, warps drift apart.
    std::vector<uint64_t> warps(num_threads / 32 + 1);
    for (uint64_t& warp : warps) warp = random_.next() >> 1 | uint64_t{1} << 62;
    priority_.resize(num_threads);
    for (int i = 0; i < num_threads; ++i)
      priority_[i] = (warps[i / 32] & ~uint64_t{0xffff}) | (random_.next() & 0xffff);
    lowest_priority_ = uint64_t{1} << 62;
    std::sort(not_begun_.begin(), not_begun_.end(), [&](int a, int b) { return lower(b, a); });
  }
}

void Scheduler::make_ready(int thread) {
  ready_.push_back(thread);
  if (policy_ == Policy::kPct) {
    std::push_heap(ready_.begin(), ready_.end(), [&](int a, int b) { return lower(a, b); });
  }
}

int Scheduler::take() {
  const bool none_ready = first_ready_ == std::ssize(ready_);
  if (none_ready && num_new() == 0) return -1;
  switch (policy_) {
    case Policy::kFifo: {
      if (none_ready) return take_new();
      const int thread = ready_[first_ready_++];
      if (first_ready_ == std::ssize(ready_)) {
        ready_.clear();
        first_ready_ = 0;
      }
      return thread;
    }
    case Policy::kLifo: {
      if (none_ready) return take_new();
      const int thread = ready_.back();
      ready_.pop_back();
      return thread;
    }
    case Policy::kRandom: return take_random();
    case Policy::kPct: return take_first_priority();
  }
  return -1;
}

int Scheduler::take_random() {
  const int64_t at = random_.below(std::ssize(ready_) + num_new());
  if (at >= std::ssize(ready_)) return take_new();
  std::swap(ready_[at], ready_.back());
  const int thread = ready_.back();
  ready_.pop_back();
  return thread;
}

int Scheduler::take_first_priority() {
  const bool begin_one = num_new() > 0 && (ready_.empty() || lower(ready_.front(), not_begun_[next_new_]));
  int thread = 0;
  if (begin_one) {
    thread = take_new();
  } else {
    std::pop_heap(ready_.begin(), ready_.end(), [&](int a, int b) { return lower(a, b); });
    thread = ready_.back();
    ready_.pop_back();
  }
  // A change point: from now on this one runs only when nobody else can.
  if (random_.below(256) == 0) priority_[thread] = --lowest_priority_;
  return thread;
}

}  // namespace ashlar::emulator
