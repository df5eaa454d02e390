#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/base/log.h"
#include "launch/training/clock.h"
#include "launch/training/held_file.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

// Rows of metrics.jsonl: JSON objects without a line break.
std::string to_json(const StepEvent& event);
/// `event` must have a result with a loss. For a mixture, the row also has the loss of each dataset.
std::string to_json(const ValidationEvent& event);
std::string to_json(const TasksEvent& event);
std::string to_json(const StatisticsEvent& event);
std::string to_json(const SaveEvent& event);

/// Writes `metrics.jsonl`: one JSON object per line, appended by a system call. For a run that
/// resumes at `completed_steps`, rows up to that step are kept. Rows of later steps, which the run will repeat, and an
/// incomplete last line are moved to `metrics.cut.jsonl`; no row is deleted. Lines that are not rows with a step are
/// kept and named in one warning.
/// A write error does not end the run (HeldFile).
class MetricsFile final : public MetricSink {
 public:
  /// `check` is called before each row and may throw, like RunDirectory::check_owned. `clock`: the `time` of rows.
  MetricsFile(const std::filesystem::path& path, int64_t completed_steps, Log& log, std::function<void()> check = {},
              std::function<double()> clock = unix_sec);

  void step(const StepEvent& event) override { append_now(to_json(event)); }
  void validation(const ValidationEvent& event) override;
  void tasks(const TasksEvent& event) override;
  void statistics(const StatisticsEvent& event) override { append_now(to_json(event)); }
  void save(const SaveEvent& event) override { append_now(to_json(event)); }

  /// The step of the last validation in the file; -1: none.
  int64_t last_validation_step() const { return last_validation_step_; }

  /// The step of the last evaluation on tasks in the file; -1: none.
  int64_t last_tasks_step() const { return last_tasks_step_; }

  int64_t rows_set_aside() const { return rows_set_aside_; }  ///< number of rows moved to metrics.cut.jsonl on opening

  /// Appends one object.
  void append(const std::string& json) { file_->append(json + "\n"); }

 private:
  /// Moves the rows that the run will repeat to another file.
  void set_repeated_rows_aside(const std::filesystem::path& path, int64_t completed_steps, Log& log);

  /// Appends an object with the field `time`: seconds since 1970.
  void append_now(const std::string& json);

  std::function<double()> clock_;
  std::optional<HeldFile> file_;
  int64_t last_validation_step_ = -1, last_tasks_step_ = -1, rows_set_aside_ = 0;
};

}  // namespace ashlar::training
