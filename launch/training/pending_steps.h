#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/error.h"
#include "core/device/stream.h"
#include "launch/training/step_all_reduce.h"

namespace ashlar::training {

/// What the host knows about a step when it queues the step.
struct QueuedStep {
  int64_t step = 0;  ///< counted from 1
  double lr = 0;
  StepCounts counts;
  double begin_sec = 0;
  double data_wait_ms = 0;
};

/// Steps that were queued but whose reports the host has not read. On an asynchronous stream one step stays pending
/// while the next is queued, so that the device never waits for the host. On a synchronous stream no step stays
/// pending, since each report is read at the end of its step.
class PendingSteps {
 public:
  PendingSteps() = default;
  explicit PendingSteps(const Stream& stream) : lag_(stream.synchronous() ? 0 : 1) {}

  void add(const QueuedStep& step) {
    ASHLAR_CHECK(size_ <= lag_, "expected at most ", lag_, " unread reports when a step is queued, got ", size_);
    steps_[static_cast<size_t>(size_++)] = step;
  }
  bool empty() const { return size_ == 0; }
  bool due() const { return size_ > lag_; }  ///< true if the oldest report must be read before the next step begins
  const QueuedStep& oldest() const { return steps_[0]; }
  /// Removes the oldest step, whose report was read. Returns its duration in ms, counted from when it was queued or
  /// from when the previous report was read, whichever is later.
  double done(double now_sec) {
    ASHLAR_CHECK(size_ > 0, "no step is pending");
    const double ms = (now_sec - std::max(steps_[0].begin_sec, last_done_sec_)) * 1e3;
    last_done_sec_ = now_sec;
    std::copy(steps_.begin() + 1, steps_.end(), steps_.begin());
    --size_;
    return ms;
  }
  /// Drops all pending steps. Called when a step was skipped: the steps queued after it changed nothing.
  void forget() { size_ = 0; }

 private:
  static constexpr int kMostLag = 1;
  int lag_ = 0;
  int size_ = 0;
  std::array<QueuedStep, kMostLag + 1> steps_;
  double last_done_sec_ = 0;
};

}  // namespace ashlar::training
