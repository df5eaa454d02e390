#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/tasks/requests.h"
#include "launch/tasks/task.h"
#include "launch/training/task_scores.h"

namespace ashlar::tasks {

struct EvaluationOptions {
  std::vector<std::string> names;
  std::filesystem::path data;                              ///< folder of the task files
  int64_t limit = 0;                                       ///< records of each task, the first ones; 0: all
  int64_t shots = 0;                                       ///< solved examples before each question
  std::function<void(const std::string& line)> samples{};  ///< gets a JSON object for each record scored; may be empty
};

/// The tasks, read and encoded. Later runs only score them.
class Evaluation final : public training::TaskEvaluation {
 public:
  /// Throws an input error for an unknown task, a missing file, or examples that a task does not have, and a
  /// damaged-data error that names the line of a record.
  Evaluation(const EvaluationOptions& options, const EncodeRule& rule, const training::ScoreLimits& limits);

  std::optional<std::vector<training::TaskScore>> run(training::Engine& engine, const Progress& progress) override;

  int64_t requests() const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  /// One line for each task of which not all published records are scored.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Loaded {
    std::string name;
    Metric metric;
    std::optional<double> core_baseline{};  ///< accuracy of guessing of a task of CORE
    std::vector<Document> documents{};
    std::vector<training::ScoreRequest> requests{};  ///< of all choices of the documents
  };
  void load(const Task& task, const EvaluationOptions& options, const EncodeRule& rule);
  void load_core(const EvaluationOptions& options, const EncodeRule& rule);
  void add(Loaded loaded);
  training::TaskScore score_of(const Loaded& loaded, std::span<const training::SequenceScore> scores) const;

  training::ScoreLimits limits_;
  std::function<void(const std::string& line)> samples_;
  std::vector<Loaded> tasks_;
  uint64_t fingerprint_ = 0;
  std::vector<std::string> notes_;
};

/// Returns the metrics of a task from the scores of its documents' choices.
std::vector<training::TaskMetric> metrics_of(Metric metric, std::span<const Document> documents,
                                             std::span<const training::SequenceScore> scores);

/// Returns CORE: the mean of the metric "centered" over its tasks, and its standard error as if the tasks were
/// independent.
training::TaskScore core_score(std::span<const training::TaskScore> tasks);

}  // namespace ashlar::tasks
