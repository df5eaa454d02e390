#pragma once

#include <memory>

#include "core/base/error.h"
#include "launch/training/run.h"

namespace ashlar::training {

class Reports;
class Saving;
class StepLoop;

/// Trains one configuration from the state of its run directory to its last step. All ranks create a Trainer and run
/// it. Rank 0 logs, and writes everything except the other ranks' shards of checkpoints. A trainer has four parts, each
/// in its own file:
///   start (run.h, run_start.h): opens the run directory, creates device and model, restores the state
///   steps (step_loop.h): queues steps, exchanges messages, decides when to save, validate and stop
///   reports (reports.h): sends rows, validation, statistics and warnings to the sinks
///   saving (saving.h): writes checkpoints
class Trainer {
 public:
  /// Opens the run directory, allocates the model and its optimizer, and loads the newest valid checkpoint (else
  /// run.init_from, else initial values). The tokenizer of the first dataset is stored in checkpoints. The datasets are
  /// reopened for the readers of the validation parts. Input error when a rank does not see the run directory.
  explicit Trainer(TrainerArgs args);
  ~Trainer();

  /// Trains to the last step, or until any rank receives a signal: then saves a checkpoint and returns the signal's
  /// exit code. Throws Error(kNonFinite) for a step with a non-finite loss or gradient; neither that step nor a later
  /// one has changed the weights.
  ExitCode run();

 private:
  std::unique_ptr<Run> run_;
  std::unique_ptr<Saving> saving_;
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<StepLoop> steps_;
};

}  // namespace ashlar::training
