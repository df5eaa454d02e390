#pragma once

#include <memory>

#include "core/base/error.h"
#include "launch/training/run.h"

namespace ashlar::training {

class Reports;
class Saving;
class StepLoop;

/// Trains one configuration from where its run directory stands to its last step. All ranks make one and run it; rank 0
/// logs, and writes everything but the other ranks' parts of checkpoints. Four parts, each with its own file:
///   start (run.h, run_start.h): opens the run directory, makes device and model, restores
///   steps (step_loop.h): queues steps, exchanges messages, decides when to save, validate and stop
///   reports (reports.h): rows, validation, statistics and warnings, for the sinks
///   saving (saving.h): checkpoints
class Trainer {
 public:
  /// Opens the run directory, allocates, and loads the newest good checkpoint (else run.init_from, else initial
  /// values). The tokenizer of the first dataset goes into checkpoints; the datasets are opened once more, for the
  /// readers of the validation parts. Input error when a rank does not see the run directory.
  explicit Trainer(TrainerArgs args);
  ~Trainer();

  /// Runs to the last step, or to a signal to any rank: then a checkpoint is saved and the signal's code returned.
  /// Throws Error(kNonFinite) for a step with a non-finite loss or gradient: neither it nor a later one has changed the
  /// weights.
  ExitCode run();

 private:
  std::unique_ptr<Run> run_;
  std::unique_ptr<Saving> saving_;
  std::unique_ptr<Reports> reports_;
  std::unique_ptr<StepLoop> steps_;
};

}  // namespace ashlar::training
