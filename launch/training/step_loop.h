#pragma once

#include <memory>
#include <optional>

#include "data/read/prefetcher.h"
#include "launch/training/pending_steps.h"
#include "launch/training/rank_work_timer.h"
#include "launch/training/reports.h"
#include "launch/training/run.h"
#include "launch/training/saving.h"
#include "launch/training/step_batches.h"

namespace ashlar::training {

/// The step part of a trainer: queues steps, exchanges one message per step between the ranks, and decides when to read
/// reports, save, validate and stop.
///   On an asynchronous device the host queues a step before it reads the report of the previous one (PendingSteps). A
/// save, a validation and the end of the run read all pending reports first.
class StepLoop {
 public:
  /// `step`: completed so far. All references must outlive the loop.
  StepLoop(Run& run, Saving& saving, Reports& reports, std::unique_ptr<data::Prefetcher> reader, int64_t step);

  /// (all ranks) Trainer::run without its error handling.
  ExitCode run();

 private:
  using StopRequest = std::optional<watch::SignalWatch::Request>;

  void run_steps(StopRequest& stop);
  ExitCode stop_at(const watch::SignalWatch::Request& request);
  /// Runs the work of a step before the first step, without effect: once, so that all tunable operations are known, and
  /// once more with the chosen algorithms. A step that does not fit into memory fails here.
  void rehearse();
  void queue_step();
  void end_step();      ///< exchanges the message of a step, with the losses of the step whose report is read
  void read_report();   ///< reads the report of the oldest pending step: writes its row or throws its error
  void read_pending();  ///< reads all pending reports
  void poll_saves();
  void save();
  bool due(int64_t every) const { return every > 0 && step_ > 0 && step_ % every == 0; }
  StepMessage message(const StepReport& report);  ///< returns the message of this rank
  StopRequest stop_request();          ///< exchanges a message; the strongest request of any rank, the same on all
  StopRequest requested_stop() const;  ///< the request in the last reduced message

  Run& run_;
  Saving& saving_;
  Reports& reports_;
  std::unique_ptr<data::Prefetcher> reader_;
  StepBatches batches_;
  std::optional<RankWorkTimer> own_work_;  ///< absent on asynchronous streams
  StepMessage of_all_;                     ///< the last message, reduced over ranks
  PendingSteps pending_;
  int64_t step_ = 0;  ///< last queued step; completed when none is pending
};

}  // namespace ashlar::training
