#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/base/log.h"
#include "launch/training/metric_sink.h"

namespace ashlar::training {

// Rows of metrics.jsonl: JSON objects without a line break.
std::string to_json(const StepEvent& event);
/// `event` must have a result with a loss. For a mixture, the row also has the loss of each dataset.
std::string to_json(const ValidationEvent& event);
std::string to_json(const StatisticsEvent& event);
std::string to_json(const SaveEvent& event);

/// Writes `metrics.jsonl`: one JSON object per line, appended by a system call before `append` returns. For a run that
/// resumes at `completed_steps`, rows up to that step are kept. Rows of later steps, which the run will repeat, and an
/// incomplete last line are moved to `metrics.cut.jsonl`; no row is deleted. Lines that are not rows with a step are
/// kept and named in one warning.
///   A write error (e.g. a full disk) does not end a run, since checkpoints may still be saved. Rows are then held in
/// memory, up to kMostHeldBytes, and each later append tries again to write them. A warning is logged when rows are
/// first held, and a line of information when all held rows are written. Rows are lost if the memory is full or the run
/// ends before they are written; a warning then gives their number.
class MetricsFile final : public MetricSink {
 public:
  static constexpr size_t kMostHeldBytes = size_t{16} << 20;

  /// `check` is called before each row and may throw, like RunDirectory::check_owned.
  MetricsFile(const std::filesystem::path& path, int64_t completed_steps, Log& log, std::function<void()> check = {});
  ~MetricsFile() override;

  void step(const StepEvent& event) override { append(to_json(event)); }
  void validation(const ValidationEvent& event) override;
  void statistics(const StatisticsEvent& event) override { append(to_json(event)); }
  void save(const SaveEvent& event) override { append(to_json(event)); }

  /// The step of the last validation in the file; -1: none.
  int64_t last_validation_step() const { return last_validation_step_; }

  int64_t rows_set_aside() const { return rows_set_aside_; }  ///< number of rows moved to metrics.cut.jsonl on opening

  /// Appends one object, or holds it until it can be written.
  void append(const std::string& json);

 private:
  void open_at(int64_t completed_steps);
  void flush();

  std::filesystem::path path_;
  Log& log_;
  std::function<void()> check_;
  int fd_ = -1;
  int64_t last_validation_step_ = -1, rows_set_aside_ = 0;
  std::string held_;    ///< rows not written yet; the first may be partly written
  std::string reason_;  ///< why rows are held; empty if no rows are held
  int64_t lost_ = 0;    ///< number of rows dropped because held_ was full
};

}  // namespace ashlar::training
