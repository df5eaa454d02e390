#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/training/metric_sink.h"
#include "launch/training/pending_steps.h"
#include "launch/training/run.h"
#include "launch/training/run_start.h"
#include "launch/training/run_status.h"
#include "launch/training/slow_ranks.h"
#include "parallel/model/flops.h"

namespace ashlar::training {

/// A completed step, as the step loop passes it to the reports.
struct FinishedStep {
  QueuedStep queued;
  StepResult result;
  const StepMessage& message;             ///< reduced over all ranks
  double ms = 0;                          ///< duration
  std::optional<double> threads_waiting;  ///< result of ThreadWaits::add on this rank
};

/// The reports part of a trainer: turns the step loop's results into events (metric_sink.h), runs validation and
/// statistics, detects slow ranks. All ranks make the same calls at the same steps; rank 0 has the sinks.
class Reports {
 public:
  /// Moves sinks and validation out of `start`, and measures the peak rate for MFU. `cores`: number of cores that the
  /// ranks of this machine share.
  Reports(Run& run, RunStart& start, int64_t cores);

  int64_t tokens() const { return tokens_; }                          ///< tokens of all steps of the run so far
  int64_t peak_memory_bytes() const { return peak_memory_.bytes(); }  ///< peak memory of this process

  void step(const FinishedStep& step);
  /// Reports the root mean squares of the weights after `step`, of the gradients of that step, and of the residual
  /// stream in that step, which was measured (Engine::measure_residual); and the load of experts in that step, which
  /// must be the last one passed to step().
  void statistics(int64_t step);
  /// Runs the validation after `step`. No effect if it was done for this step, or without validation data. Throws
  /// AllRanksError(kNonFinite) if a loss is not finite.
  void validate(int64_t step);
  /// The validation loss after `step`; absent if it was not validated since the start or the last resume.
  std::optional<checkpoint::RankedStep> score(int64_t step) const;
  void saving(int64_t step) { status_.saving(step); }  ///< a save of this step begins, or the wait for it
  void save_begun(const SaveEvent& event);
  void saved(const SavedEvent& event) { emit(&MetricSink::saved, event); }
  void end(int64_t step, std::optional<std::string> signal, std::vector<checkpoint::RankedStep> best);
  /// Evaluates the model on the tasks after `step`. No effect if it was done for this step, or without tasks.
  void evaluate_tasks(int64_t step);
  /// True if the step's validation or evaluation on tasks is missing.
  bool lacks_evaluation(int64_t step) const { return lacks_validation(step) || lacks_tasks(step); }
  void error(int64_t step, const Error& error) noexcept;

 private:
  void watch_slow_ranks(int64_t cores);
  bool lacks_validation(int64_t step) const { return validated_step_ != step && !validation_.empty(); }
  bool lacks_tasks(int64_t step) const { return tasks_step_ != step && tasks_ != nullptr; }
  /// Returns the function to call before each forward pass of an evaluation: it reports progress to the watch, and
  /// returns the exit code of a pending signal, else 0.
  std::function<int64_t()> before_batch();
  void log_slow_ranks(const FinishedStep& step);
  std::vector<ExpertLoad> expert_loads_of_step();
  template <typename Event>
  void emit(void (MetricSink::*what)(const Event&), const Event& event) {
    for (const auto& sink : sinks_) (*sink.*what)(event);
  }

  Run& run_;
  std::vector<std::unique_ptr<MetricSink>> sinks_;  ///< on rank 0 only
  Validation validation_;
  int64_t validated_step_ = -1;
  std::optional<ValidationResult> last_;  ///< of the last validation
  std::unique_ptr<TaskEvaluation> tasks_;
  int64_t tasks_step_ = -1;
  int64_t tokens_ = 0;
  std::vector<double> expert_counts_;  ///< of the last step; on rank 0 only
  PeakMemory peak_memory_;
  const model::FlopsPerToken flops_;
  double peak_flops_ = 0;  ///< peak FLOP/s of all ranks
  RemainingTime remaining_;
  RunStatus status_;
  std::optional<ExpertWatch> experts_;   ///< rank 0 only; absent in a model without experts
  std::optional<SlowRanks> slow_ranks_;  ///< rank 0 only; absent if slow ranks are not detected
};

}  // namespace ashlar::training
