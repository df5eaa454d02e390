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

/// The step part of a trainer: queues steps, exchanges one message a step between the ranks, and decides when to read,
/// save, validate and stop.
///   On a device whose stream works on its own the host queues a step before it reads what the step before came to
/// (PendingSteps); whatever looks at a step, such as a save, a validation or the end, reads what is pending first.
class StepLoop {
 public:
  /// `step`: completed so far. All must outlive the loop.
  StepLoop(Run& run, Saving& saving, Reports& reports, std::unique_ptr<data::Prefetcher> reader, int64_t step);

  /// (all ranks) Trainer::run, but for what follows an error.
  ExitCode run();

 private:
  using StopRequest = std::optional<watch::SignalWatch::Request>;

  void run_steps(StopRequest& stop);
  ExitCode stop_at(const watch::SignalWatch::Request& request);
  /// Before the first step: does its work once without effect, so that all that can be chosen is known, and once more
  /// with what was chosen. A step that does not fit into memory fails here.
  void rehearse();
  void queue_step();
  void end_step();      ///< exchanges the message of a step, with the losses of the step whose report is due
  void read_report();   ///< of the oldest pending step: its row, or its error
  void read_pending();  ///< all of them
  void poll_saves();
  void save();
  bool due(int64_t every) const { return every > 0 && step_ > 0 && step_ % every == 0; }
  StepMessage message(const StepReport& report);  ///< of this rank
  StopRequest stop_request();                     ///< exchanges a message; of any rank, the same on all
  StopRequest requested_stop() const;             ///< the request in the last message of all

  Run& run_;
  Saving& saving_;
  Reports& reports_;
  std::unique_ptr<data::Prefetcher> reader_;
  StepBatches batches_;
  std::optional<RankWorkTimer> own_work_;  ///< none where the stream works on its own
  StepMessage of_all_;                     ///< ranks, the last one
  PendingSteps pending_;
  int64_t step_ = 0;  ///< queued; completed when none is pending
};

}  // namespace ashlar::training
