#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace ashlar::checkpoint {

/// Runs one function on a separate thread, to write, read back or delete files. That thread blocks signals, has a lower
/// priority than compute threads, and must not communicate with other ranks. All member functions are called by one
/// thread, the owner of the job.
class BackgroundJob {
 public:
  /// A function that the work polls. It returns true when the result is no longer needed; the work then returns or
  /// throws.
  using Cancelled = std::function<bool()>;
  using Work = std::function<void(const Cancelled& cancelled)>;

  /// `thread_name`: name that the operating system shows for the thread; at most 15 characters.
  explicit BackgroundJob(const char* thread_name) : thread_name_(thread_name) {}
  ~BackgroundJob();  ///< cancels the work and waits for its end
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Starts the work. Earlier work must have been joined.
  void start(Work work);
  bool started() const { return thread_.joinable(); }  ///< started, and not joined yet
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// Waits for the end of the work. Requires started().
  void wait() const { ended_.wait(false, std::memory_order_acquire); }
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }
  /// Waits for the end of the work and rethrows its exception.
  void join();

 private:
  const char* const thread_name_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> cancel_{false};
  std::exception_ptr thrown_;
};

}  // namespace ashlar::checkpoint
