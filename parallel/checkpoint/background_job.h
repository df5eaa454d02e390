#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace ashlar::checkpoint {

/// One piece of work on a thread of its own: writing, reading back, deleting. The thread takes no signal that can be
/// sent to the process, gives way to computing threads, and must not communicate. One owner thread.
class BackgroundJob {
 public:
  /// What the work asks from time to time: true when nobody wants its result any more, then it returns or throws.
  using Cancelled = std::function<bool()>;
  using Work = std::function<void(const Cancelled& cancelled)>;

  /// `thread_name`: of at most 15 characters, for whoever reports what a thread is at.
  explicit BackgroundJob(const char* thread_name) : thread_name_(thread_name) {}
  ~BackgroundJob();  ///< cancels and waits
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  /// Begins; the last one must have been finished with `take`.
  void start(Work work);
  bool started() const { return thread_.joinable(); }  ///< and not taken yet
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void wait() const { ended_.wait(false, std::memory_order_acquire); }  ///< for its end; started only
  void cancel() { cancel_.store(true, std::memory_order_relaxed); }
  /// Waits for its end and throws what it threw.
  void take();

 private:
  const char* const thread_name_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> cancel_{false};
  std::exception_ptr thrown_;
};

}  // namespace ashlar::checkpoint
