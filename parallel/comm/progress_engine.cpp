#include "parallel/comm/progress_engine.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/base/error.h"

namespace ashlar::comm {

namespace {

// Decides how a waiting rank polls and sleeps. Busy polling is fastest if each rank has a core. If ranks share cores,
// the peer can make progress only when this rank yields.
class Backoff {
 public:
  void pause() {
    if (++polls_ <= kSpins) return;
    sched_yield();
    if (polls_ % kClockEvery != 0 && !slow_) return;
    const Clock::time_point now = Clock::now();
    if (start_ == Clock::time_point()) start_ = now;
    const Clock::duration waited = now - start_;
    slow_ = waited >= std::chrono::milliseconds(10);
    if (slow_) std::this_thread::sleep_for(std::min<Clock::duration>(waited / 100, std::chrono::microseconds(500)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kSpins = 100;
  static constexpr int64_t kClockEvery = 32;
  int64_t polls_ = 0;
  Clock::time_point start_;
  bool slow_ = false;
};

// Sets `flag` during its lifetime, and adds the lifetime to `seconds` unless this Mark is nested in another one.
class Mark {
 public:
  Mark(std::atomic<bool>& flag, double& seconds)
      : flag_(flag), seconds_(seconds), before_(flag.exchange(true, std::memory_order_relaxed)), begin_(Clock::now()) {}
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() {
    flag_.store(before_, std::memory_order_relaxed);
    if (!before_) seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::atomic<bool>& flag_;
  double& seconds_;
  const bool before_;
  const Clock::time_point begin_;
};

// Tells a trace when a call begins and ends. Without `trace` or `operation` does nothing.
class TracedCall {
 public:
  TracedCall(OperationObserver* trace, const Operation* operation)
      : trace_(operation != nullptr ? trace : nullptr), operation_(operation) {
    if (trace_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;
  ~TracedCall() {
    if (trace_ != nullptr) trace_->called(*operation_, begin_, std::chrono::steady_clock::now());
  }
  OperationObserver::Instant begin() const { return begin_; }

 private:
  OperationObserver* const trace_;
  const Operation* const operation_;
  OperationObserver::Instant begin_;
};

}  // namespace

void ProgressEngine::check_owner() const {
  ASHLAR_CHECK(std::this_thread::get_id() == owner_,
               "expected communication only from the thread that constructed the engine");
}

void ProgressEngine::submit(const std::shared_ptr<Operation>& operation, const OperationInfo& info,
                            const std::shared_ptr<const std::string>& communicator) {
  operation->info_ = info;
  operation->communicator_ = communicator;
  check_owner();
  ASHLAR_CHECK(!abandoned_, operation->text(), " after communication was abandoned");
  if (swallowed_) std::rethrow_exception(std::exchange(swallowed_, nullptr));
  const TracedCall call(trace_, operation.get());
  if (trace_ != nullptr) trace_->begun(*operation, call.begin());
  try {
    if (operation->advance()) return complete(*operation);
  } catch (...) {
    operation->state_ = Operation::State::kFailed;
    operation->failure_ = std::current_exception();
    throw;
  }
  pending_.push_back(operation);
}

void ProgressEngine::progress() {
  check_owner();
  if (swallowed_) std::rethrow_exception(std::exchange(swallowed_, nullptr));
  if (pending_.empty()) return;
  ASHLAR_CHECK(!running_, "an operation must not call `progress` of the engine that runs it");
  // A wait is told as a whole.
  const bool told = trace_ != nullptr && !waiting();
  const std::shared_ptr<Operation> oldest = told ? pending_.front() : nullptr;
  const TracedCall call(trace_, oldest.get());
  running_ = true;
  bool finished = false;
  std::exception_ptr failure;
  // Iterates by index, since an operation may submit others while it advances.
  for (size_t i = 0; i < pending_.size() && !failure; ++i) {
    const std::shared_ptr<Operation> operation = pending_[i];
    try {
      if (!operation->advance()) continue;
      complete(*operation);
    } catch (...) {
      failure = operation->failure_ = std::current_exception();
      operation->state_ = Operation::State::kFailed;
      given_up_.push_back(operation);  // keeps the buffers alive, into which the transport may still write
    }
    finished = true;
  }
  running_ = false;
  if (finished) drop_finished();
  if (failure) std::rethrow_exception(failure);
}

void ProgressEngine::complete(Operation& operation) {
  operation.state_ = Operation::State::kDone;
  completed_.fetch_add(1, std::memory_order_relaxed);
  if (trace_ != nullptr) trace_->ended(operation, std::chrono::steady_clock::now());
}

void ProgressEngine::drop_finished() {
  std::erase_if(pending_, [](const auto& operation) { return operation->state() != Operation::State::kPending; });
}

void ProgressEngine::wait(const Operation& operation, Until until) {
  Backoff backoff;
  const Mark mark(waiting_, waited_sec_);
  const auto pending = [&] {
    return operation.state() == Operation::State::kPending && !(until == Until::kReceived && operation.received());
  };
  const TracedCall call(trace_, pending() ? &operation : nullptr);
  while (pending()) {
    progress();
    if (!pending()) break;
    ASHLAR_CHECK(!operation.stuck(), operation.text(), " waits for an operation that this rank has not issued");
    backoff.pause();
  }
  if (operation.failure_) std::rethrow_exception(operation.failure_);
  ASHLAR_CHECK(operation.state() != Operation::State::kAbandoned, operation.text(), " was abandoned");
}

void ProgressEngine::wait_quietly(const Operation& operation) noexcept {
  try {
    wait(operation);
  } catch (...) {
    swallowed_ = std::current_exception();
  }
}

void ProgressEngine::abandon() noexcept {
  abandoned_ = true;
  for (const auto& operation : pending_) operation->state_ = Operation::State::kAbandoned;
  given_up_.insert(given_up_.end(), pending_.begin(), pending_.end());
  pending_.clear();
}

void ProgressEngine::note(const OperationInfo& info, const std::shared_ptr<const std::string>& communicator) {
  if (observer_) observer_(info, *communicator);
  const std::lock_guard lock(noted_mutex_);
  noted_ = info;
  noted_communicator_ = communicator;
}

std::string ProgressEngine::last_operation() const {
  const std::lock_guard lock(noted_mutex_);
  return describe(noted_, noted_communicator_ ? *noted_communicator_ : std::string());
}

}  // namespace ashlar::comm
