#pragma once

#include <optional>
#include <vector>

#include "core/device/host_threads.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::training {

/// Detects that the threads of a rank mostly wait for each other. The time available to all threads but one is the sum
/// of step time * (threads - 1) over kSteps steps. The threads wait too much if they spend more than the share kMost of
/// this time waiting.
class ThreadWaits {
 public:
  static constexpr int kSteps = 20;
  static constexpr double kMost = 0.6;

  /// Adds a step: its duration, the waiting time summed over all threads, and the number of threads. After every kSteps
  /// steps, returns the share of waiting in these steps if it exceeds kMost for the first time. Returns nothing
  /// otherwise.
  std::optional<double> add(double step_sec, double waited_sec, int threads);

 private:
  int steps_ = 0;
  bool reported_ = false;
  double available_sec_ = 0, waited_sec_ = 0;
};

/// Measures how long this rank itself works on a step, without waits for other ranks and for data. Measures host time,
/// so it is only for backends whose calls are synchronous.
class RankWorkTimer {
 public:
  /// `threads`: the CPU threads of the backend; null if it has none.
  RankWorkTimer(const comm::ProgressEngine& engine, const HostThreads* threads) : engine_(engine), threads_(threads) {}

  void start();     ///< work on the step begins or continues
  void stop();      ///< work on the step pauses
  void end_step();  ///< the step is complete
  /// Writes the times that were not sent yet into `mine`, this rank's message. All ranks call it for the same messages.
  void write_to(StepMessage& mine, int rank, int ranks);
  /// The result of ThreadWaits::add for the last completed step.
  std::optional<double> waiting_threads() const { return waiting_; }

 private:
  const comm::ProgressEngine& engine_;
  const HostThreads* threads_;
  double begin_sec_ = 0, waited_begin_sec_ = 0, threads_begin_sec_ = 0;
  double own_sec_ = 0, threads_sec_ = 0;  // seconds of the current step so far
  ThreadWaits thread_waits_;
  std::optional<double> waiting_;
  std::vector<double> window_ms_;  // work time of each step since the last window that was sent
  bool reported_ = true;
  double last_ms_ = 0;
};

}  // namespace ashlar::training
