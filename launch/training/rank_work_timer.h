#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/device/host_threads.h"
#include "launch/training/step_all_reduce.h"
#include "parallel/comm/progress_engine.h"

namespace ashlar::training {

/// Whether the threads of a rank mostly wait for each other: in 20 steps more than 60% of the time in which all but
/// one of them could have worked.
class ThreadWaits {
 public:
  static constexpr int kSteps = 20;
  static constexpr double kMost = 0.6;

  /// One step more: its time, how long its threads waited, all together, and how many there are. The share of the
  /// last kSteps steps when it is too large, once.
  std::optional<double> add(double step_sec, double waited_sec, int threads);

 private:
  int steps_ = 0;
  bool said_ = false;
  double available_sec_ = 0, waited_sec_ = 0;
};

/// How long this rank itself has worked on a step, waits for other ranks and for data excluded: the host's time, so on
/// a backend whose calls have finished when they return.
class RankWorkTimer {
 public:
  /// `threads`: null where the backend has none.
  RankWorkTimer(const comm::ProgressEngine& engine, const HostThreads* threads) : engine_(engine), threads_(threads) {}

  void start();     ///< work on the step begins, or goes on
  void stop();      ///< something else begins
  void end_step();  ///< the step is done
  /// Puts what was not told yet into this rank's message; called by all ranks for the same messages.
  void tell(StepMessage& mine, int rank, int ranks);
  /// See ThreadWaits, of the step that has ended last.
  std::optional<double> waiting_threads() const { return waiting_; }

 private:
  const comm::ProgressEngine& engine_;
  const HostThreads* threads_;
  double begin_sec_ = 0, waited_begin_sec_ = 0, threads_begin_sec_ = 0;
  double own_sec_ = 0, threads_sec_ = 0;  // of the step so far
  ThreadWaits thread_waits_;
  std::optional<double> waiting_;
  std::vector<double> window_ms_;  // of the steps since the last window was told
  bool told_ = true;
  double last_ms_ = 0;
};

}  // namespace ashlar::training
