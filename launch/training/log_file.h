#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/base/log.h"
#include "launch/training/held_file.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

/// Writes `train.log`: every line of rank 0's log with its time (UTC), from the start of the program, and the error
/// that ends a run. A run that resumes appends. While an object exists, it copies the lines of `log`, which must
/// outlive it.
class LogFile final : public MetricSink {
 public:
  /// `check` is called before each line, which is left out if it throws: another process owns the file then.
  LogFile(const std::filesystem::path& path, Log& log, std::function<void()> check = {});
  ~LogFile() override;

  void error(const ErrorEvent& event) override;

 private:
  void append(std::string line);

  Log& log_;
  std::function<void()> check_;
  HeldFile file_;
};

}  // namespace ashlar::training
