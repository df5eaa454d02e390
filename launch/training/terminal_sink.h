#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

std::string to_line(const StepEvent& event);
/// Returns the lines of a validation: one line for each dataset without a loss, then one line with the loss. For a
/// mixture, the line with the loss shows the mean, and a line for each dataset with a loss precedes it.
std::vector<std::string> to_lines(const ValidationEvent& event);
std::string to_line(const EndEvent& event);  ///< empty unless a signal ended the run

/// Formats a duration as "1:02:03", "4:05" or "12s".
std::string human_seconds(double seconds);

/// Logs the events of a run as lines for the user.
class TerminalSink final : public MetricSink {
 public:
  /// A step is printed every `every` steps, and if it is the first or the last.
  TerminalSink(Log& log, int64_t every) : log_(log), every_(every) {}

  void start(const StartEvent& event) override;
  void step(const StepEvent& event) override;
  void validation(const ValidationEvent& event) override;
  void warning(const WarningEvent& event) override;
  void end(const EndEvent& event) override;

 private:
  Log& log_;
  int64_t every_;
};

}  // namespace ashlar::training
