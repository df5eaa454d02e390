#include "launch/training/task_scores.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace ashlar::training {

std::vector<std::string> to_lines(std::span<const TaskScore> scores) {
  size_t width = 0;
  for (const TaskScore& score : scores) width = std::max(width, score.task.size());
  std::vector<std::string> lines;
  for (const TaskScore& score : scores) {
    std::string line = absl::StrFormat("%-*s %5d records", static_cast<int>(width), score.task, score.records);
    for (const TaskMetric& m : score.metrics)
      line += absl::StrFormat("  %s %.*f +- %.*f", m.name, m.name == "perplexity" ? 2 : 4, m.value,
                              m.name == "perplexity" ? 2 : 4, m.error);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace ashlar::training
