#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace ashlar::cpu {

/// The threads that a backend computes with: the one that calls, and size() - 1 of its own that wait for work.
/// A waiting thread (for work, at a barrier, for the end of a region) spins for `spin_us` microseconds, then sleeps in
/// the kernel (futex). Where other programs want cores too, spinning for longer takes the core from the thread that is
/// waited for; sleeping at once costs an interrupt at each of the thousands of waits of a step.
class Threads {
 public:
  /// Long beside the gaps of a step on cores of its own, short beside the time that a scheduler gives a program.
  static constexpr int64_t kSpinMicroseconds = 100;

  /// Starts the threads. `spin_us` = 0: sleep at once, right for more threads than cores. Throws resource_error (exit
  /// 6) when the system refuses a thread.
  explicit Threads(int size, int64_t spin_us = kSpinMicroseconds);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int size() const { return size_; }

  /// work(thread, count) on count = min(wanted, size()) threads, the caller as thread 0, and returns when all have done
  /// it; work(0, 1) when called inside a region, or while another thread has one. `work` must not throw: that ends the
  /// process.
  template <typename Work>
  void run(int wanted, const Work& work) {
    const int count = std::min(wanted, size_);
    if (count <= 1 || busy_.exchange(true, std::memory_order_acquire)) return work(0, 1);
    run_region({.call = [](const void* what, int thread,
                           int threads) noexcept { (*static_cast<const Work*>(what))(thread, threads); },
                .work = &work,
                .count = count});
    busy_.store(false, std::memory_order_release);
  }
  /// Inside `work`, by all threads of its region: returns when all have called it.
  void barrier(int thread);

  /// How long threads of regions have waited for others of theirs, all together. Any thread may ask.
  double waited_sec() const;

 private:
  struct Region {
    void (*call)(const void* work, int thread, int threads) noexcept = nullptr;
    const void* work = nullptr;
    int count = 1;
  };
  /// Whether a thread spins before it sleeps. After several spins in vain it does not, for more and more waits: the
  /// thread that it waits for shares its core, or has none at the moment.
  class Waiter {
   public:
    bool spins();
    void spun(bool in_time);  ///< whether the wait was over within the spin

   private:
    static constexpr int kTrust = 3, kFirstSkips = 8, kMostSkips = 256;
    int failures_ = 0, skip_ = 0, skips_ = kFirstSkips;
  };
  struct alignas(64) OfThread {
    std::atomic<int64_t> waited_ns = 0;  // written by its thread alone
    Waiter in_region, idle;
  };

  void run_region(const Region& region);
  void serve(int thread);  // what a thread of its own does
  void stop() noexcept;
  void count(int thread, int64_t waited_ns);
  template <typename Done, typename Sleep>
  int64_t wait(const Done& done, const Sleep& sleep, Waiter& waiter) const;  // how long it was, in ns

  const int size_;
  const int64_t spin_ns_;
  alignas(64) std::atomic<bool> busy_ = false;  // a region is under way
  // The number of the region in the lower half, which sleepers watch; how many threads it has in the upper: 0 ends all.
  alignas(64) std::atomic<uint64_t> go_ = 0;
  std::atomic<int> idle_sleepers_ = 0;
  Region region_;                                    // of `go_`; its threads alone read it
  alignas(64) std::atomic<uint32_t> remaining_ = 0;  // threads of the region, but the caller, that have not ended
  std::atomic<bool> caller_sleeps_ = false;
  alignas(64) std::atomic<uint32_t> arrived_ = 0;  // at the barrier
  alignas(64) std::atomic<uint32_t> barriers_ = 0;
  std::atomic<int> barrier_sleepers_ = 0;
  std::unique_ptr<OfThread[]> of_threads_;
  std::vector<std::thread> own_;
};

}  // namespace ashlar::cpu
