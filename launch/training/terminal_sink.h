#pragma once

#include <string>
#include <vector>

#include "core/base/log.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

std::string to_line(const StepEvent& event);
/// The lines of a validation: one for each dataset without a loss, and one with the loss. For a mixture there is a loss
/// line for each dataset, then one with the mean.
std::vector<std::string> to_lines(const ValidationEvent& event);
std::string to_line(const EndEvent& event);  ///< empty unless a signal ended the run

/// "1:02:03", "4:05" or "12s".
std::string human_seconds(double seconds);

/// Lines for the user.
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
