#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/training/engine.h"

namespace ashlar::training {

/// A metric of a task, and the standard error of its mean over the records.
struct TaskMetric {
  std::string name;
  double value = 0, error = 0;
};

struct TaskScore {
  std::string task;
  int64_t records = 0;
  std::vector<TaskMetric> metrics;
};

/// Returns a line for each task, aligned: its name, its number of records, and each metric with its standard error.
std::vector<std::string> to_lines(std::span<const TaskScore> scores);

/// Evaluates the current weights on tasks. An interface, so that training does not depend on what a task is.
class TaskEvaluation {
 public:
  TaskEvaluation() = default;
  TaskEvaluation(const TaskEvaluation&) = delete;
  TaskEvaluation& operator=(const TaskEvaluation&) = delete;
  virtual ~TaskEvaluation() = default;

  /// Called before each forward pass with the number of inputs of the task that are done. Non-zero: stop.
  using Progress = std::function<int64_t(const std::string& task, int64_t done)>;
  /// Called by all ranks; the result is the same on all. Returns nothing if `progress` stopped it on any rank. Throws
  /// AllRanksError(kNonFinite) if a probability is not a number.
  virtual std::optional<std::vector<TaskScore>> run(Engine& engine, const Progress& progress) = 0;

  virtual int64_t requests() const = 0;      ///< number of texts to score
  virtual uint64_t fingerprint() const = 0;  ///< of all texts; equal on all ranks if they read the same files
};

}  // namespace ashlar::training
