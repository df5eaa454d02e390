#include "tests/parallel/render_schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/base/error.h"

namespace ashlar::pipeline {
namespace {

char letter_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return 'F';
    case ActionKind::kBackward: return 'B';
    case ActionKind::kBackwardInput: return 'I';
    case ActionKind::kBackwardWeight: return 'W';
    case ActionKind::kTransfer: return '~';
  }
  throw Bug("ActionKind out of range");
}

std::string label_of(const ScheduleSpec& spec, const Action& action) {
  std::string label(1, letter_of(action.kind));
  if (action.kind == ActionKind::kTransfer) return label;
  label += str_cat(action.micro_batch);
  if (spec.virtual_stages > 1) label += str_cat(".", action.chunk);
  return label;
}

/// The largest number of columns for a unit of time that fits, and no more than the labels ask for.
double scale_of(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Simulation& run,
                int64_t columns) {
  double wanted = 0;
  for (size_t stage = 0; stage < lists.size(); ++stage) {
    for (size_t i = 0; i < lists[stage].size(); ++i) {
      const double length = run.stages[stage].spans[i].end - run.stages[stage].spans[i].start;
      if (length <= 0 || lists[stage][i].kind == ActionKind::kTransfer) continue;
      wanted = std::max(wanted, static_cast<double>(label_of(spec, lists[stage][i]).size()) / length);
    }
  }
  return run.time > 0 ? std::min(wanted, static_cast<double>(columns) / run.time) : 0;
}

}  // namespace

std::string render(const ScheduleSpec& spec, const std::vector<ActionList>& lists, const Simulation& run,
                   int64_t columns) {
  const double scale = scale_of(spec, lists, run, columns);
  const auto column = [scale](double time) { return static_cast<size_t>(std::floor(time * scale + 0.5)); };
  std::string text = absl::StrFormat(
      "time %g, bubble %.1f%%; F forward, B backward, I and W its input and weight parts, ~ transfer, number: "
      "micro-batch%s\n",
      run.time, 100 * run.bubble_fraction, spec.virtual_stages > 1 ? ".chunk" : "");
  const size_t digits = str_cat(spec.stages - 1).size();
  for (size_t stage = 0; stage < lists.size(); ++stage) {
    std::string row(column(run.time), '.');
    for (size_t i = 0; i < lists[stage].size(); ++i) {
      const Span span = run.stages[stage].spans[i];
      const size_t begin = column(span.start), width = column(span.end) - begin;
      std::string cell = label_of(spec, lists[stage][i]);
      const char fill = cell[0] == letter_of(ActionKind::kTransfer) ? cell[0] : '-';
      if (cell.size() > width) cell.resize(1);
      cell.resize(width, fill);
      row.replace(begin, width, cell);
    }
    text += absl::StrFormat("stage %*d |%s| idle %.0f%%\n", static_cast<int>(digits), stage, row,
                            run.time > 0 ? 100 * run.stages[stage].idle / run.time : 0.0);
  }
  return text;
}

}  // namespace ashlar::pipeline
