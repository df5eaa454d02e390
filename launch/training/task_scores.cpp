#include "launch/training/task_scores.h"

#include "absl/strings/str_format.h"

namespace ashlar::training {

std::string to_line(const TaskScore& score) {
  std::string line = absl::StrFormat("%-13s %5d records", score.task, score.records);
  for (const TaskMetric& m : score.metrics)
    line += absl::StrFormat("  %s %.*f +- %.*f", m.name, m.name == "perplexity" ? 2 : 4, m.value,
                            m.name == "perplexity" ? 2 : 4, m.error);
  return line;
}

}  // namespace ashlar::training
