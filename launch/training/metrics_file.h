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
std::string to_json(const ValidationEvent& event);  ///< of a result with a loss; of a mixture with each dataset's, too
std::string to_json(const StatisticsEvent& event);
std::string to_json(const SaveEvent& event);

/// `metrics.jsonl`: one object a line, appended and handed to the system at once. Opened for a run that resumes at
/// `completed_steps`, it keeps the rows up to that step. Rows of later steps, which the run makes again, and a last
/// line that a kill tore are moved to `metrics.cut.jsonl`: nothing that was written is deleted. Lines that are no row
/// with a step stay where they are, named in one warning.
///   A file that takes no more (a full disk) does not end a run, which may still be able to save: rows are kept in
/// memory, up to kMostHeldBytes, and tried again with each one that follows. The log is told when that begins, when all
/// is written, and which rows are lost in the end.
class MetricsFile final : public MetricSink {
 public:
  static constexpr size_t kMostHeldBytes = size_t{16} << 20;

  /// `check` is called before each row and may throw, as RunDirectory::check_owned.
  MetricsFile(const std::filesystem::path& path, int64_t completed_steps, Log& log, std::function<void()> check = {});
  ~MetricsFile() override;

  void step(const StepEvent& event) override { append(to_json(event)); }
  void validation(const ValidationEvent& event) override;
  void statistics(const StatisticsEvent& event) override { append(to_json(event)); }
  void save(const SaveEvent& event) override { append(to_json(event)); }

  /// The step of the last validation that is kept; -1 when there is none.
  int64_t last_validation_step() const { return last_validation_step_; }

  int64_t rows_set_aside() const { return rows_set_aside_; }  ///< when it was opened

  /// Appends one object, or keeps it until it can be.
  void append(const std::string& json);

 private:
  void open_at(int64_t completed_steps);
  void flush();

  std::filesystem::path path_;
  Log& log_;
  std::function<void()> check_;
  int fd_ = -1;
  int64_t last_validation_step_ = -1, rows_set_aside_ = 0;
  std::string held_;    ///< to be written; of its first row a part may be written already
  std::string reason_;  ///< why it is held; empty when nothing is
  int64_t lost_ = 0;    ///< rows that memory did not keep
};

}  // namespace ashlar::training
