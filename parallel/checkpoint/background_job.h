#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace ashlar::checkpoint {

/// A piece of work on a separate thread: writing, reading back, deleting. The thread blocks signals, yields to compute
/// threads, and must not communicate. One thread owns the job and makes all calls.
class BackgroundJob {
 public:
  /// A function that the work polls. It returns true when the result is no longer needed; the work then returns or
  /// throws.
  using Cancelled = std::function<bool()>;
  using Work = std::function<void(const Cancelled& cancelled)>;

  /// `thread_name`: at most 15 characters, for reports of hangs.
  explicit BackgroundJob(const char* thread_name) : thread_name_(thread_name) {}
  ~BackgroundJob();  ///< cancels and waits
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Starts the work. Earlier work must have been joined.
  void start(Work work);
  bool started() const { return thread_.joinable(); }  ///< started, and not joined yet
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void wait() const { ended_.wait(false, std::memory_order_acquire); }  ///< waits for its end; only if started
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }
  /// Waits for its end and rethrows its exception.
  void join();

 private:
  const char* const thread_name_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> cancel_{false};
  std::exception_ptr thrown_;
};

}  // namespace ashlar::checkpoint
