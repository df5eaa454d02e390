#pragma once

#include <optional>
#include <vector>

#include "core/device/host_threads.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::training {

/// Detects threads of a rank that mostly wait for each other: in 20 steps, more than 60% of the time in which all but
/// one of them could have worked.
class ThreadWaits {
 public:
  static constexpr int kSteps = 20;
  static constexpr double kMost = 0.6;

  /// Adds a step: its time, the waiting time of all threads together, and the number of threads. Returns the share of
  /// waiting over the last kSteps steps when it is too large, once.
  std::optional<double> add(double step_sec, double waited_sec, int threads);

 private:
  int steps_ = 0;
  bool reported_ = false;
  double available_sec_ = 0, waited_sec_ = 0;
};

/// Time that this rank itself works on a step, without waits for other ranks and for data. Measured as host time, so
/// only for backends whose calls are synchronous.
class RankWorkTimer {
 public:
  /// `threads`: null if the backend has none.
  RankWorkTimer(const comm::ProgressEngine& engine, const HostThreads* threads) : engine_(engine), threads_(threads) {}

  void start();     ///< work on the step begins or continues
  void stop();      ///< other work begins
  void end_step();  ///< the step is complete
  /// Writes unreported times into this rank's message. All ranks call it for the same messages.
  void write_to(StepMessage& mine, int rank, int ranks);
  /// The result of ThreadWaits for the last completed step.
  std::optional<double> waiting_threads() const { return waiting_; }

 private:
  const comm::ProgressEngine& engine_;
  const HostThreads* threads_;
  double begin_sec_ = 0, waited_begin_sec_ = 0, threads_begin_sec_ = 0;
  double own_sec_ = 0, threads_sec_ = 0;  // seconds of the step so far
  ThreadWaits thread_waits_;
  std::optional<double> waiting_;
  std::vector<double> window_ms_;  // of the steps since the last reported window
  bool reported_ = true;
  double last_ms_ = 0;
};

}  // namespace ashlar::training
