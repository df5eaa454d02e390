#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/base/log.h"
#include "launch/training/clock.h"
#include "launch/training/held_file.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

/// Writes an event file that TensorBoard shows while the run goes on (`tensorboard --logdir` of the folder of runs).
/// Each start of a run has a file of its own, `events.out.tfevents.SECONDS.HOST.PID`, whose name comes after those of
/// earlier starts. A run that resumes marks its first step, from which TensorBoard drops what earlier files have. Does
/// not check who owns the directory: MetricsFile, the sink before, does.
///
///   train/...          a step: loss, grad_norm, lr, tokens, clip_scale, ..., and the metrics of layers
///   speed/..., gpu/... a step: times, rates, memory
///   val/loss, val/bpb  a validation; of a mixture also val/loss/PATH and val/bpb/PATH
///   weight_rms/NAME, grad_rms/NAME, output_rms/NAME, experts/...   statistics
///   config, sample     the configuration, and the texts of log.sample, on the page "Text"
class TensorBoardSink final : public MetricSink {
 public:
  struct Args {
    std::filesystem::path dir;  ///< the run directory
    int64_t completed_steps = 0;
    std::string config_toml;
    Log& log;
    std::function<double()> clock = unix_sec;
  };
  explicit TensorBoardSink(const Args& args);

  void step(const StepEvent& event) override;
  void validation(const ValidationEvent& event) override;
  void sample(const SampleEvent& event) override;
  void tasks(const TasksEvent& event) override;
  void statistics(const StatisticsEvent& event) override;

 private:
  std::function<double()> clock_;
  HeldFile file_;
};

}  // namespace ashlar::training
