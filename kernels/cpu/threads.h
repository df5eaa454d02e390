#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace ashlar::cpu {

/// The compute threads of a backend: the caller, and size() - 1 threads of this object that wait for work. A thread
/// that waits (for work, at a barrier, for the end of a region) spins for `spin_us` microseconds, then sleeps in the
/// kernel (futex). If other programs need the cores too, longer spinning may take a core from the thread that is waited
/// for. Sleeping at once would cost an interrupt at each of the thousands of waits of a step.
class Threads {
 public:
  /// Longer than the waits within a step on dedicated cores, and shorter than a time slice of the scheduler.
  static constexpr int64_t kSpinMicroseconds = 100;

  /// Starts the threads. `spin_us` = 0: sleep at once, best for more threads than cores. Throws resource_error (exit 6)
  /// if the system refuses a thread.
  explicit Threads(int size, int64_t spin_us = kSpinMicroseconds);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int size() const { return size_; }

  /// Calls work(thread, count) on count = min(wanted, size()) threads, the caller as thread 0, and returns when all
  /// have finished; work(0, 1) inside a region, or while another thread has one. `work` must not throw: that ends the
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
  /// Barrier inside `work`, for all threads of its region.
  void barrier(int thread);

  /// Total time that threads of regions have waited for each other. Thread-safe.
  double waited_sec() const;

 private:
  struct Region {
    void (*call)(const void* work, int thread, int threads) noexcept = nullptr;
    const void* work = nullptr;
    int count = 1;
  };
  /// Decides whether a thread spins before it sleeps. After several unsuccessful spins it does not spin for
  /// increasingly many waits, since the awaited thread probably shares its core or has none.
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
  void serve(int thread);  // loop of an own thread
  void stop() noexcept;
  void count(int thread, int64_t waited_ns);
  template <typename Done, typename Sleep>
  int64_t wait(const Done& done, const Sleep& sleep, Waiter& waiter) const;  // returns the duration in ns

  const int size_;
  const int64_t spin_ns_;
  alignas(64) std::atomic<bool> busy_ = false;  // a region is running
  // The region's number in the lower half, watched by sleepers; its number of threads in the upper half: 0 ends all.
  alignas(64) std::atomic<uint64_t> go_ = 0;
  std::atomic<int> idle_sleepers_ = 0;
  Region region_;                                    // of `go_`; read only by its threads
  alignas(64) std::atomic<uint32_t> remaining_ = 0;  // unfinished threads of the region, except the caller
  std::atomic<bool> caller_sleeps_ = false;
  alignas(64) std::atomic<uint32_t> arrived_ = 0;  // at the barrier
  alignas(64) std::atomic<uint32_t> barriers_ = 0;
  std::atomic<int> barrier_sleepers_ = 0;
  std::unique_ptr<OfThread[]> of_threads_;
  std::vector<std::thread> own_;
};

}  // namespace ashlar::cpu
