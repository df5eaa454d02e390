#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/comm/operation.h"

namespace ashlar::comm {

/// Counts of messages and bytes that this rank has sent.
struct Traffic {
  int64_t messages = 0;
  int64_t bytes = 0;
};

/// Receives when the operations of a rank begin and end, and when the rank waits for one, as the owner of the engine
/// sees it: an operation ends when the engine finds that it is complete. Calls must be quick and must not communicate.
class OperationObserver {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  OperationObserver() = default;
  OperationObserver(const OperationObserver&) = delete;
  OperationObserver& operator=(const OperationObserver&) = delete;
  virtual ~OperationObserver() = default;

  virtual void begun(const Operation& operation, Instant at) = 0;
  virtual void ended(const Operation& operation, Instant at) = 0;
  /// The owner was in a call that issued `operation`, waited for it, or advanced it with all others that are pending. A
  /// call within another one is told first, too.
  virtual void called(const Operation& operation, Instant begin, Instant end) = 0;
};

/// Holds and advances all pending operations of this rank. All communicators that are split from one world share one
/// engine. A wait for one operation advances all operations, so that ranks that wait on different communicators cannot
/// block each other. Only the thread that constructed the engine may call its functions (Bug otherwise), except those
/// marked as thread-safe.
class ProgressEngine {
 public:
  ProgressEngine() : owner_(std::this_thread::get_id()) {}

  /// Starts `operation`, described by `info`, on `communicator`, and owns a reference to it until completion.
  void submit(const std::shared_ptr<Operation>& operation, const OperationInfo& info,
              const std::shared_ptr<const std::string>& communicator);
  /// Advances all pending operations. If an operation fails, throws its error; a wait for the failed operation throws
  /// the error again. An error that occurs in a destructor is thrown when the next operation is issued or advanced.
  void progress();
  /// `wait` makes progress until `operation` is complete (kDone) or has received its data (kReceived). It polls at
  /// first, then yields between polls, and after ten milliseconds sleeps for at most 1% of the time it has waited.
  enum class Until : uint8_t { kDone, kReceived };
  void wait(const Operation& operation, Until until = Until::kDone);
  /// Variant of `wait` for destructors: stores an error for the next call.
  void wait_quietly(const Operation& operation) noexcept;

  /// Abandons all pending operations permanently, because an error is being handled and peers may never answer. Buffers
  /// that the engine owns for them stay allocated. No further operation can be submitted.
  void abandon() noexcept;
  bool abandoned() const { return abandoned_; }
  /// Frees the abandoned operations, when the process is about to end.
  void forget() noexcept { given_up_.clear(); }
  bool idle() const { return pending_.empty(); }

  /// A function that is called when an operation is issued on any communicator; it must be quick. There is at most one
  /// observer. `observe` sets it (null: none) and returns the previous observer.
  using Observer = std::function<void(const OperationInfo& info, std::string_view communicator)>;
  Observer observe(Observer observer) { return std::exchange(observer_, std::move(observer)); }

  /// Sets the receiver of begins and ends, for traces; null: none. It must outlive the engine or be removed.
  void trace(OperationObserver* trace) { trace_ = trace; }

  /// Records an operation as the last issued one, and calls the observer.
  void note(const OperationInfo& info, const std::shared_ptr<const std::string>& communicator);
  /// Describes the last operation issued on this rank. Thread-safe: a watchdog reads it while the owner waits.
  std::string last_operation() const;
  /// completed: number of completed operations. waiting: true while the owner waits. Both are thread-safe.
  uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// Returns the time that the owner has waited so far, in seconds.
  double waited_sec() const { return waited_sec_; }

  Traffic& data_traffic() { return data_traffic_; }        ///< sent by all communicators except control planes
  Traffic& control_traffic() { return control_traffic_; }  ///< sent by control planes

 private:
  void check_owner() const;
  void complete(Operation& operation);
  void drop_finished();

  const std::thread::id owner_;
  std::vector<std::shared_ptr<Operation>> pending_;
  std::vector<std::shared_ptr<Operation>> given_up_;
  std::exception_ptr swallowed_;
  bool abandoned_ = false;
  bool running_ = false;
  std::atomic<uint64_t> completed_ = 0;
  std::atomic<bool> waiting_ = false;
  double waited_sec_ = 0;
  Observer observer_;
  OperationObserver* trace_ = nullptr;
  Traffic data_traffic_, control_traffic_;

  mutable std::mutex noted_mutex_;
  OperationInfo noted_;
  std::shared_ptr<const std::string> noted_communicator_;
};

}  // namespace ashlar::comm
