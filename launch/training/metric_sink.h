#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/gpu_monitor.h"
#include "launch/config/run_config.h"
#include "launch/training/engine.h"
#include "launch/training/expert_load.h"
#include "launch/training/run_events.h"
#include "launch/training/task_scores.h"
#include "launch/training/validation.h"
#include "parallel/checkpoint/ranking.h"

namespace ashlar::training {

// Events of a run. Rank 0 passes them to every sink.

/// The run is about to take its first step.
struct StartEvent {
  const config::RunConfig& config;
  int ranks = 1;
  double peak_flops = 0;             ///< peak FLOP/s of all ranks; `mfu` is relative to it
  int64_t step = 0;                  ///< steps completed; 0: the run is new
  std::vector<std::string> changes;  ///< what differs from the checkpoint that the run resumes from
  std::string plan;                  ///< JSON object of the plan (RunPlan); empty: none was made
};

/// A completed step. `mfu` and `mfu_causal` are negative when no peak is known.
struct StepEvent {
  int64_t step = 0;  ///< steps completed, counted from 1
  int64_t total_steps = 0;
  StepResult result;
  double lr = 0;
  int64_t tokens = 0;  ///< tokens of the run so far
  double step_ms = 0;
  double tokens_per_sec = 0;
  double mfu = -1;         ///< MFU with attention flops counted in full (model::FlopsPerToken::total_full)
  double mfu_causal = -1;  ///< MFU with causal, i.e. half, attention flops (total_causal)
  int64_t peak_memory_bytes = 0;
  double data_wait_ms = 0;
  double eta_sec = 0;
  SlowestRank slowest;  ///< the rank with the longest compute time; rank -1 on asynchronous devices
  // State of rank 0's GPU after the step; -1 or absent on other devices:
  int64_t gpu_memory_bytes = -1;
  GpuMonitor::Reading gpu;
};

/// A validation has ended.
struct ValidationEvent {
  int64_t step = 0;
  std::optional<ValidationResult> result;  ///< absent: stopped early by a signal
  double seconds = 0;
};

/// A text that the model has generated after a validation.
struct SampleEvent {
  int64_t step = 0;
  std::string prompt, text;  ///< `text` continues the prompt; any bytes
};

/// An evaluation on tasks has ended.
struct TasksEvent {
  int64_t step = 0;
  std::optional<std::vector<TaskScore>> scores;  ///< absent: stopped early by a signal
  double seconds = 0;
};

/// Root mean squares of weights, gradients and residual stream, and the load of experts, every log.stats_every steps.
struct StatisticsEvent {
  struct OfTensor {
    std::string name;
    double weight_rms = 0;
    double grad_rms = 0;  ///< before clipping
  };
  int64_t step = 0;
  std::vector<OfTensor> tensors;     ///< ordered by name
  std::vector<double> residual_rms;  ///< [n_layers + 1], after the embedding and after each block
  std::vector<ExpertLoad> experts;   ///< of each layer with experts
};

/// A save has begun. The checkpoint is written while training continues.
struct SaveEvent {
  int64_t step = 0;
  double ms = 0;                   ///< time that training waited for the save
  std::optional<double> val_loss;  ///< validation loss of the saved weights
};

/// The checkpoint of a step is complete.
struct SavedEvent {
  int64_t step = 0;
  int64_t bytes = 0;
  double seconds = 0;  ///< time that the save took
  /// The best checkpoints that stay (checkpoint.keep_best), the best first, with this one if it is among them.
  std::vector<checkpoint::RankedStep> best;
};

/// The run ends without an error.
struct EndEvent {
  int64_t step = 0;  ///< steps completed
  int64_t total_steps = 0;
  std::optional<std::string> signal;         ///< signal that ended the run; absent: all steps are done
  std::optional<double> val_loss, val_bpb;   ///< of the last validation since the start or the last resume
  std::vector<checkpoint::RankedStep> best;  ///< SavedEvent::best
  std::string memory, device_memory;         ///< MemoryLedger's reports when all steps are done; may be empty
};

/// The run ends with an error that all ranks know. A rank that fails alone ends the process without this event.
struct ErrorEvent {
  int64_t step = 0;  ///< steps queued, of which the last ones may not be completed
  ExitCode code = ExitCode::kBug;
  std::string text;
};

/// Receiver of the events of a run, such as the terminal or a file. Only rank 0 has sinks (Reports) and calls them in
/// order for each event. A sink overrides the functions of the events that it handles.
class MetricSink {
 public:
  MetricSink() = default;
  MetricSink(const MetricSink&) = delete;
  MetricSink& operator=(const MetricSink&) = delete;
  virtual ~MetricSink() = default;

  virtual void start(const StartEvent&) {}
  virtual void step(const StepEvent&) {}
  virtual void validation(const ValidationEvent&) {}
  virtual void sample(const SampleEvent&) {}
  virtual void tasks(const TasksEvent&) {}
  virtual void statistics(const StatisticsEvent&) {}
  virtual void save(const SaveEvent&) {}
  virtual void saved(const SavedEvent&) {}
  virtual void warning(const WarningEvent&) {}
  virtual void end(const EndEvent&) {}
  virtual void error(const ErrorEvent&) {}
};

}  // namespace ashlar::training
