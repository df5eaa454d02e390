#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/config/run_config.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

std::string to_line(const StepEvent& event);        ///< log.line = "full"
std::string to_short_line(const StepEvent& event);  ///< at most 100 columns up to step 999,999 and norm 999
/// Returns the lines of a validation: one line for each dataset without a loss, then one line with the loss. For a
/// mixture, the line with the loss shows the mean, and a line for each dataset with a loss precedes it.
std::vector<std::string> to_lines(const ValidationEvent& event);
std::vector<std::string> to_lines(const TasksEvent& event);
std::string to_line(const SavedEvent& event);  ///< empty unless the checkpoint is one of the best that stay
std::string to_line(const EndEvent& event);
std::string bpb_text(std::optional<double> bits);  ///< "val_bpb 1.2345", or why there is none

/// Formats a count with three digits: "987", "65.4k", "1.20M".
std::string human_count(double n);

/// Formats a duration as "1:02:03", "4:05" or "12s".
std::string human_seconds(double seconds);

/// Logs the events of a run as lines for the user.
class TerminalSink final : public MetricSink {
 public:
  /// A step is printed every `log.every` steps, and if it is the first or the last. Its line has the mean loss over the
  /// steps since the line before.
  TerminalSink(Log& log, const config::LogSection& options) : log_(log), options_(options) {}

  void start(const StartEvent& event) override;
  void step(const StepEvent& event) override;
  void validation(const ValidationEvent& event) override;
  void sample(const SampleEvent& event) override;
  void saved(const SavedEvent& event) override;
  void tasks(const TasksEvent& event) override;
  void warning(const WarningEvent& event) override;
  void end(const EndEvent& event) override;

 private:
  Log& log_;
  config::LogSection options_;
  double loss_sum_ = 0;     ///< over the steps since the line before
  int64_t loss_steps_ = 0;  ///< their number
};

}  // namespace ashlar::training
