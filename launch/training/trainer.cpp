#include "launch/training/trainer.h"

#include "core/device/host_limits.h"
#include "launch/training/reports.h"
#include "launch/training/run_identity.h"
#include "launch/training/run_start.h"
#include "launch/training/saving.h"
#include "launch/training/start_report.h"
#include "launch/training/step_loop.h"

namespace ashlar::training {

Trainer::Trainer(TrainerArgs args) {
  run_ = std::make_unique<Run>(args);
  saving_ = std::make_unique<Saving>(*run_, args.datasets.front().dataset->tokenizer().to_json(),
                                     data_records(args.datasets));
  const DataFacts data = facts_of(args.datasets);
  RunStart start = start_run(*run_, *saving_, args);
  log_start(*run_, data, start.text, !start.restored);
  reports_ = std::make_unique<Reports>(*run_, start, args.cores > 0 ? args.cores : usable_cores());
  steps_ = std::make_unique<StepLoop>(*run_, *saving_, *reports_, std::move(start.reader), start.progress.step);
}

Trainer::~Trainer() = default;

ExitCode Trainer::run() {
  try {
    return steps_->run();
  } catch (const Error& error) {
    // A save in progress stores an earlier step, whose state is valid, so it is completed.
    if (run_->is_known_to_all(error)) saving_->wait();
    reports_->error(steps_->queued(), error);
    throw;
  }
}

}  // namespace ashlar::training
