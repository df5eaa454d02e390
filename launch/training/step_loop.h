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
  /// `step`: number of steps completed so far. All references must outlive the loop.
  StepLoop(Run& run, Saving& saving, Reports& reports, std::unique_ptr<data::Prefetcher> reader, int64_t step);

  /// (all ranks) Trainer::run without its error handling.
  ExitCode run();
  int64_t queued() const { return step_; }  ///< number of steps queued so far

 private:
  using StopRequest = std::optional<watch::SignalWatch::Request>;

  void run_steps(StopRequest& stop);
  ExitCode stop_at(const watch::SignalWatch::Request& request);
  /// Runs forward and backward before the first step and discards the gradients: first to find all tunable operations,
  /// then again with the chosen algorithms, until Tuning::complete has nothing left to choose. A step that does not fit
  /// into memory fails here.
  void rehearse();
  void queue_step();
  void forward_backward(const QueuedStep& step);
  void read_batches();  ///< of the next step
  void update(const QueuedStep& step);
  StepMessage exchange(const StepMessage& mine);
  void end_step();      ///< exchanges the StepMessage; if a report is due, reads it and sends its losses
  void read_report();   ///< reads the report of the oldest pending step; passes it to `reports_` or throws its error
  void read_pending();  ///< reads all pending reports
  void poll_saves();
  void rank();  ///< gives the checkpoint of this step its place by validation loss, if the step was validated
  void save();
  void save_last();     ///< at the end of the run; returns when the checkpoint is complete
  void report_saved();  ///< reports the checkpoints that have become complete
  static bool due(int64_t every, int64_t step) { return every > 0 && step > 0 && step % every == 0; }
  bool due(int64_t every) const { return due(every, step_); }
  StepMessage message(const StepReport& report);  ///< returns the message of this rank
  StopRequest stop_request();                     ///< exchanges a message and returns requested_stop()
  StopRequest requested_stop() const;  ///< highest stop request (exit code) among all ranks, from the last message

  Run& run_;
  Saving& saving_;
  Reports& reports_;
  std::unique_ptr<data::Prefetcher> reader_;
  StepBatches batches_;
  std::optional<RankWorkTimer> own_work_;  ///< absent on asynchronous streams
  StepMessage of_all_;                     ///< the last message, reduced over ranks
  PendingSteps pending_;
  int64_t step_ = 0;  ///< number of steps queued so far; all are completed if none is pending
};

}  // namespace ashlar::training
