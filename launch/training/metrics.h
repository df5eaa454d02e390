#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/base/log.h"
#include "core/device/gpu_monitor.h"
#include "launch/training/engine.h"
#include "launch/training/validation.h"

namespace ashlar::training {

/// One step as it is reported. `mfu_*` are negative when no peak is known.
struct MetricsRow {
  int64_t step = 0;  ///< steps completed, counted from 1
  int64_t total_steps = 0;
  StepResult result;
  double lr = 0;
  int64_t tokens = 0;  ///< of the whole run so far
  double step_ms = 0;
  double tokens_per_sec = 0;
  double mfu = -1;         ///< 6N + 12 L H D T a token
  double mfu_causal = -1;  ///< attention counted at half
  int64_t peak_memory_bytes = 0;
  double data_wait_ms = 0;
  double eta_sec = 0;
  SlowestRank slowest;  ///< whose own work took longest; untold on devices that work beside the host
  // Of rank 0's GPU, behind the step; untold on other devices:
  int64_t gpu_memory_bytes = -1;
  GpuMonitor::Reading gpu;
};

std::string to_line(const MetricsRow& row);  ///< what the user reads
std::string to_json(const MetricsRow& row);  ///< the same as one JSON object, without a line break

/// "1:02:03", "4:05" or "12s".
std::string human_seconds(double seconds);

/// `metrics.jsonl`: one object a line, appended and handed to the system at once. Opened for a run that resumes at
/// `completed_steps`, it keeps the rows up to that step. Rows of later steps, which the run makes again, and a last
/// line that a kill tore are moved to `metrics.cut.jsonl`: nothing that was written is deleted. Lines that are no row
/// with a step stay where they are, named in one warning.
///   A file that takes no more (a full disk) does not end a run, which may still be able to save: rows are kept in
/// memory, up to kMostHeldBytes, and tried again with each one that follows. The log is told when that begins, when all
/// is written, and which rows are lost in the end.
class MetricsFile {
 public:
  static constexpr size_t kMostHeldBytes = size_t{16} << 20;

  /// `check` is called before each row and may throw, as RunDirectory::check_owned.
  MetricsFile(const std::filesystem::path& path, int64_t completed_steps, Log& log, std::function<void()> check = {});
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// The step of the last validation that is kept; -1 when there is none.
  int64_t last_validation_step() const { return last_validation_step_; }

  int64_t rows_set_aside() const { return rows_set_aside_; }  ///< when it was opened

  /// Appends one object, or keeps it until it can be.
  void append(const std::string& json);
  /// `val_loss` and `val_tokens`; of a mixture `val_sources` too: path, weight, val_loss and val_tokens of each.
  void append_validation(int64_t step, const ValidationResult& result, double seconds);

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
