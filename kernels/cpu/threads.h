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
  /// Default of `spin_us`. It is longer than the waits within a step on dedicated cores, and shorter than a time slice
  /// of the scheduler.
  static constexpr int64_t kSpinMicroseconds = 100;

  /// Starts the threads. With `spin_us` = 0 a waiting thread sleeps at once, which is best for more threads than cores.
  /// Throws resource_error (exit code 6) if the system refuses a thread. With `skips_work` no thread is started, and
  /// `run` does nothing: for dry runs, which need size() alone.
  explicit Threads(int size, int64_t spin_us = kSpinMicroseconds, bool skips_work = false);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int size() const { return size_; }

  /// Calls work(thread, count) on count = min(wanted, size()) threads, the caller as thread 0, and returns when all
  /// have finished. Inside a region, or while another thread runs a region, calls only work(0, 1) on the calling
  /// thread. `work` must not throw: an exception ends the process.
  template <typename Work>
  void run(int wanted, const Work& work) {
    if (skips_work_) return;
    const int count = std::min(wanted, size_);
    if (count <= 1 || busy_.exchange(true, std::memory_order_acquire)) return work(0, 1);
    run_region({.call = [](const void* what, int thread,
                           int threads) noexcept { (*static_cast<const Work*>(what))(thread, threads); },
                .work = &work,
                .count = count});
    busy_.store(false, std::memory_order_release);
  }
  /// Waits until all threads of the region have called barrier(). Each thread calls it inside `work`, with its index.
  void barrier(int thread);

  /// Total time that threads of regions have waited for each other. Thread-safe.
  double waited_sec() const;

 private:
  struct Region {
    void (*call)(const void* work, int thread, int threads) noexcept = nullptr;
    const void* work = nullptr;
    int count = 1;
  };
  /// Decides whether a thread spins before it sleeps. After kTrust unsuccessful spins in a row, the awaited thread
  /// probably has no core, or has to share the core of the spinning thread. The waiting thread then sleeps at once in
  /// its next kFirstSkips waits. Each further unsuccessful spin doubles this number of waits, up to kMostSkips.
  class Waiter {
   public:
    bool spins();
    void spun(bool in_time);  ///< `in_time`: the wait ended while the thread was spinning

   private:
    static constexpr int kTrust = 3, kFirstSkips = 8, kMostSkips = 256;
    int failures_ = 0, skip_ = 0, skips_ = kFirstSkips;
  };
  struct alignas(64) OfThread {
    std::atomic<int64_t> waited_ns = 0;  // only its thread writes it
    Waiter in_region, idle;
  };

  void run_region(const Region& region);
  void serve(int thread);  // main loop of a thread of this object
  void stop() noexcept;
  void count(int thread, int64_t waited_ns);
  template <typename Done, typename Sleep>
  int64_t wait(const Done& done, const Sleep& sleep, Waiter& waiter) const;  // returns the duration in ns

  const int size_;
  const int64_t spin_ns_;
  const bool skips_work_;
  alignas(64) std::atomic<bool> busy_ = false;  // a region is running
  // Lower half: counter that identifies the latest region; idle threads sleep until it changes. Upper half: how many
  // threads the region has; 0 ends all threads of this object.
  alignas(64) std::atomic<uint64_t> go_ = 0;
  std::atomic<int> idle_sleepers_ = 0;
  Region region_;                                    // the region that go_ announces; read by the region's threads only
  alignas(64) std::atomic<uint32_t> remaining_ = 0;  // unfinished threads of the region, except the caller
  std::atomic<bool> caller_sleeps_ = false;
  alignas(64) std::atomic<uint32_t> arrived_ = 0;  // number of threads at the barrier
  alignas(64) std::atomic<uint32_t> barriers_ = 0;
  std::atomic<int> barrier_sleepers_ = 0;
  std::unique_ptr<OfThread[]> of_threads_;
  std::vector<std::thread> own_;
};

}  // namespace ashlar::cpu
