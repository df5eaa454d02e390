#pragma once

#include <atomic>
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

/// What this rank has sent to others.
struct Traffic {
  int64_t messages = 0;
  int64_t bytes = 0;
};

/// Everything under way on this rank. All communicators split from one world share one engine: whoever waits for one
/// operation drives all of them, so that ranks which wait on different communicators cannot hold each other up.
/// One thread only, the one that made it (Bug otherwise), except `last_operation`.
class ProgressEngine {
 public:
  ProgressEngine() : owner_(std::this_thread::get_id()) {}

  /// Starts `operation`, which is `info` on `communicator`; keeps it until it is complete.
  void submit(const std::shared_ptr<Operation>& operation, const OperationInfo& info,
              const std::shared_ptr<const std::string>& communicator);
  /// Advances everything under way. What fails is thrown here, and again by whoever waits for it. A failure that a
  /// destructor had to swallow is thrown by the next call.
  void progress();
  /// Progress until `operation` is complete. Polls at first, then gives the core away between polls, and after ten
  /// milliseconds sleeps for at most a hundredth of what it has waited.
  enum class Until : uint8_t { kDone, kReceived };
  void wait(const Operation& operation, Until until = Until::kDone);
  /// As `wait`, for destructors: keeps a failure for the next call.
  void wait_quietly(const Operation& operation) noexcept;

  /// Gives up everything under way, for good: an error is on its way to main, peers may never answer. Buffers of the
  /// abandoned operations that belong to the engine stay allocated; no later operation can be submitted.
  void abandon() noexcept;
  bool abandoned() const { return abandoned_; }
  /// Frees what was given up: the process is about to end.
  void forget() noexcept { given_up_.clear(); }
  bool idle() const { return pending_.empty(); }

  /// Told of each operation as it is issued, on any communicator; must be quick. One at a time; null: none. Returns
  /// the one before.
  using Observer = std::function<void(const OperationInfo& info, std::string_view communicator)>;
  Observer observe(Observer observer) { return std::exchange(observer_, std::move(observer)); }

  /// Notes what was issued last, on any communicator.
  void note(const OperationInfo& info, const std::shared_ptr<const std::string>& communicator);
  /// The last operation issued on this rank, described. Any thread may ask: a watchdog reads it while the owner waits.
  std::string last_operation() const;
  /// How many operations have been completed, and whether the owner waits for one. Any thread may ask.
  uint64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// How long the owner has waited so far.
  double waited_sec() const { return waited_sec_; }

  Traffic& data_traffic() { return data_traffic_; }        ///< of communicators
  Traffic& control_traffic() { return control_traffic_; }  ///< of control planes

 private:
  void check_owner() const;
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
  Traffic data_traffic_, control_traffic_;

  mutable std::mutex noted_mutex_;
  OperationInfo noted_;
  std::shared_ptr<const std::string> noted_communicator_;
};

}  // namespace ashlar::comm
