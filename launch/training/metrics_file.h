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
std::string to_json(
    const ValidationEvent& event);  ///< a result with a loss; for a mixture also the loss of each dataset
std::string to_json(const StatisticsEvent& event);
std::string to_json(const SaveEvent& event);

/// `metrics.jsonl`: one object per line, appended and flushed to the system at once. For a run that resumes at
/// `completed_steps`, rows up to that step are kept. Rows of later steps, which the run will repeat, and an incomplete
/// last line are moved to `metrics.cut.jsonl`; nothing that was written is deleted. Lines that are not rows with a step
/// are kept and named in one warning.
///   A write error (a full disk) does not end a run, since it may still be able to save. Rows are then held in memory,
/// up to kMostHeldBytes, and each following row tries again to write them. A warning is logged when this begins, when
/// all rows are written, and when rows are lost.
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

  int64_t rows_set_aside() const { return rows_set_aside_; }  ///< moved to metrics.cut.jsonl on opening

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
  std::string reason_;  ///< why rows are held; empty: none are
  int64_t lost_ = 0;    ///< rows dropped because memory was full
};

}  // namespace ashlar::training
