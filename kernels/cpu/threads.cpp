#include "kernels/cpu/threads.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <system_error>

#include "core/base/error.h"
#include "core/device/host_limits.h"

namespace ashlar::cpu {
namespace {

static_assert(std::endian::native == std::endian::little, "the lower half of a word is at its address");

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pause() { __builtin_ia32_pause(); }

// Sleeps until another thread wakes this one; returns at once if the word differs from `old`. Spurious wake-ups are
// possible.
void sleep_on(const void* word, uint32_t old, uint32_t bits = FUTEX_BITSET_MATCH_ANY) {
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, old, nullptr, nullptr, bits);
}
void wake(const void* word, uint32_t bits = FUTEX_BITSET_MATCH_ANY) {
  syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT32_MAX, nullptr, nullptr, bits);
}

// Returns the bit of the futex mask that wakes a thread; threads from 31 on share one bit.
uint32_t bit_of(int thread) { return uint32_t{1} << std::min(thread, 31); }
uint32_t bits_below(int count) { return count > 31 ? ~uint32_t{0} : (uint32_t{1} << count) - 1; }

}  // namespace

Threads::Threads(int size, int64_t spin_us, bool skips_work)
    : size_(size),
      spin_ns_(spin_us * 1000),
      skips_work_(skips_work),
      of_threads_(std::make_unique<OfThread[]>(static_cast<size_t>(std::max(size, 1)))) {
  ASHLAR_CHECK(size >= 1, "size = ", size);
  try {
    for (int thread = 1; thread < size && !skips_work; ++thread) own_.emplace_back([this, thread] { serve(thread); });
  } catch (const std::system_error& error) {
    const size_t had = own_.size() + 1;
    stop();
    throw resource_error(
        "threads", "the system refused thread ", had + 1, " of ", size, " (", error.code().message(),
        "); lower run.threads, or raise the limits shown by `ulimit -u` and `ulimit -v`: ", memory_state_text());
  }
}

Threads::~Threads() { stop(); }

void Threads::stop() noexcept {
  go_.store((go_.load() + 1) & UINT32_MAX);
  wake(&go_);
  for (std::thread& thread : own_) thread.join();
}

bool Threads::Waiter::spins() {
  if (skip_ == 0) return true;
  --skip_;
  return false;
}

void Threads::Waiter::spun(bool in_time) {
  if (in_time) {
    failures_ = 0;
    skips_ = kFirstSkips;
    return;
  }
  if (++failures_ < kTrust) return;
  skip_ = skips_;
  skips_ = std::min(2 * skips_, kMostSkips);
}

template <typename Done, typename Sleep>
int64_t Threads::wait(const Done& done, const Sleep& sleep, Waiter& waiter) const {
  constexpr int kPauses = 16;  // number of pauses between two clock reads
  const int64_t begin = now_ns();
  int64_t now = begin;
  bool over = done();
  if (!over && spin_ns_ > 0 && waiter.spins()) {
    while (!over && now - begin < spin_ns_) {
      for (int i = 0; i < kPauses && !over; ++i) {
        pause();
        over = done();
      }
      now = now_ns();
    }
    waiter.spun(over);
  }
  if (!over) {
    sleep();
    now = now_ns();
  }
  return now - begin;
}

void Threads::count(int thread, int64_t ns) {
  std::atomic<int64_t>& sum = of_threads_[static_cast<size_t>(thread)].waited_ns;
  sum.store(sum.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
}

void Threads::run_region(const Region& region) {
  region_ = region;
  remaining_.store(static_cast<uint32_t>(region.count - 1), std::memory_order_relaxed);
  const uint64_t number = (go_.load(std::memory_order_relaxed) + 1) & UINT32_MAX;
  go_.store(number | static_cast<uint64_t>(region.count)
                         << 32);  // sequentially consistent, so ordered before the load of idle_sleepers_
  if (idle_sleepers_.load() > 0) wake(&go_, bits_below(region.count));
  region.call(region.work, 0, region.count);
  const auto done = [this] { return remaining_.load(std::memory_order_acquire) == 0; };
  if (done()) return;
  const int64_t ns = wait(
      done,
      [&] {
        caller_sleeps_.store(true);
        for (uint32_t left = remaining_.load(); left != 0; left = remaining_.load()) sleep_on(&remaining_, left);
        caller_sleeps_.store(false, std::memory_order_relaxed);
      },
      of_threads_[0].in_region);
  count(0, ns);
}

void Threads::serve(int thread) {
  uint64_t seen = 0;
  for (;;) {
    wait([&] { return go_.load(std::memory_order_acquire) != seen; },
         [&] {
           idle_sleepers_.fetch_add(1);
           while (go_.load() == seen) sleep_on(&go_, static_cast<uint32_t>(seen), bit_of(thread));
           idle_sleepers_.fetch_sub(1);
         },
         of_threads_[static_cast<size_t>(thread)].idle);
    seen = go_.load(std::memory_order_acquire);
    const int count = static_cast<int>(seen >> 32);
    if (count == 0) return;
    if (thread >= count) continue;  // not in this region; region_ may already describe a later one
    region_.call(region_.work, thread, count);
    if (remaining_.fetch_sub(1) == 1 && caller_sleeps_.load()) wake(&remaining_);
  }
}

void Threads::barrier(int thread) {
  const uint32_t number = barriers_.load(std::memory_order_relaxed);  // unchanged until this thread has arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(region_.count)) {
    arrived_.store(0, std::memory_order_relaxed);
    barriers_.store(number + 1);
    if (barrier_sleepers_.load() > 0) wake(&barriers_);
    return;
  }
  const auto done = [&] { return barriers_.load(std::memory_order_acquire) != number; };
  if (done()) return;
  const int64_t ns = wait(
      done,
      [&] {
        barrier_sleepers_.fetch_add(1);
        while (barriers_.load() == number) sleep_on(&barriers_, number);
        barrier_sleepers_.fetch_sub(1);
      },
      of_threads_[static_cast<size_t>(thread)].in_region);
  count(thread, ns);
}

double Threads::waited_sec() const {
  int64_t sum = 0;
  for (int thread = 0; thread < size_; ++thread)
    sum += of_threads_[static_cast<size_t>(thread)].waited_ns.load(std::memory_order_relaxed);
  return static_cast<double>(sum) * 1e-9;
}

}  // namespace ashlar::cpu
