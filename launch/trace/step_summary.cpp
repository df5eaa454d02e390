#include "launch/trace/step_summary.h"

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "parallel/pipeline/simulate.h"

namespace ashlar::trace {

namespace {

constexpr double kNsPerMs = 1e6;

bool any(const OperationSlice&) { return true; }
bool of_stages(const OperationSlice& slice) { return slice.between_stages(); }

double ms(int64_t ns) { return static_cast<double>(ns) / kNsPerMs; }

int64_t overlap(const Interval& a, const Interval& b) {
  return std::max<int64_t>(0, std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

bool is_transfer(const ActionSlice& slice) { return slice.action.kind == pipeline::ActionKind::kTransfer; }

/// Time of an action without transfers and waits between stages.
int64_t busy(const ActionSlice& slice, const RankTrace& rank) {
  return slice.time.length() - covered(slice.time, rank.calls, of_stages);
}

Interval hull(Interval a, const Interval& b) { return {std::min(a.begin, b.begin), std::max(a.end, b.end)}; }
constexpr Interval kNothing{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};

/// The step of a rank, without what may follow it (validation, saves).
Interval step_of(const RankTrace& rank) {
  Interval step = kNothing;
  for (const PartSlice& slice : rank.parts) {
    using enum Part;
    const Part part = slice.part;
    if (part == kForwardBackward || part == kData || part == kOptimizer || part == kExchange)
      step = hull(step, slice.time);
  }
  return step.begin > step.end ? Interval() : step;
}

/// Returns the stretches in which an operation on buffers is under way, in order, without overlap, within `step`.
std::vector<Interval> under_way(const RankTrace& rank, const Interval& step) {
  std::vector<Interval> all;
  for (const OperationSlice& slice : rank.operations)
    if (slice.on_data_plane() && overlap(slice.time, step) > 0)
      all.push_back({std::max(slice.time.begin, step.begin), std::min(slice.time.end, step.end)});
  std::ranges::sort(all, {}, &Interval::begin);
  std::vector<Interval> merged;
  for (const Interval& one : all) {
    if (!merged.empty() && one.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, one.end);
    else
      merged.push_back(one);
  }
  return merged;
}

/// The ranks of one pipeline share all coordinates but the stage; returns their index.
int64_t pipeline_of(const StepTrace& step, int64_t rank) {
  return mesh::index_of(step.mesh, mesh::coordinates_of(step.mesh, rank), kAllAxes - AxisSet(Axis::kPipeline));
}

/// Returns for each pipeline the time from its first action to its last.
std::vector<Interval> schedules(const StepTrace& step) {
  std::vector<Interval> windows(static_cast<size_t>(step.mesh.size(kAllAxes - AxisSet(Axis::kPipeline))), kNothing);
  for (size_t r = 0; r < step.ranks.size(); ++r) {
    Interval& window = windows[static_cast<size_t>(pipeline_of(step, static_cast<int64_t>(r)))];
    for (const ActionSlice& slice : step.ranks[r].actions) window = hull(window, slice.time);
  }
  return windows;
}

RankSummary rank_summary(const RankTrace& rank, const Interval& schedule) {
  RankSummary s;
  int64_t computing = 0;
  for (const ActionSlice& slice : rank.actions)
    if (!is_transfer(slice)) computing += busy(slice, rank);
  if (schedule.end > schedule.begin)
    s.bubble = 1 - static_cast<double>(computing) / static_cast<double>(schedule.length());
  const Interval step = step_of(rank);
  for (const PartSlice& slice : rank.parts)
    if (slice.part == Part::kForwardBackward || slice.part == Part::kOptimizer)
      s.computed_ms += ms(slice.time.length() - covered(slice.time, rank.calls, any));
  s.communicated_ms = ms(covered(step, rank.calls, any));
  for (const Interval& stretch : under_way(rank, step)) {
    s.under_way_ms += ms(stretch.length());
    s.hidden_ms += ms(stretch.length() - covered(stretch, rank.calls, any));
  }
  return s;
}

/// Mean measured times of the chunks of the model, as the simulator takes them.
pipeline::Costs measured_costs(const StepTrace& step) {
  using enum pipeline::ActionKind;
  const auto chunks = static_cast<size_t>(step.schedule.chunks());
  std::vector<double> sums[3], counts[3];
  for (int kind = 0; kind < 3; ++kind) {
    sums[kind].assign(chunks, 0);
    counts[kind].assign(chunks, 0);
  }
  for (size_t r = 0; r < step.ranks.size(); ++r) {
    const int64_t stage = mesh::coordinates_of(step.mesh, static_cast<int64_t>(r))[Axis::kPipeline];
    for (const ActionSlice& slice : step.ranks[r].actions) {
      if (is_transfer(slice)) continue;
      const int kind = slice.action.kind == kForward ? 0 : slice.action.kind == kBackwardWeight ? 2 : 1;
      const auto chunk = static_cast<size_t>(pipeline::model_chunk(stage, slice.action.chunk, step.schedule.stages));
      sums[kind][chunk] += static_cast<double>(std::max<int64_t>(busy(slice, step.ranks[r]), 0));
      counts[kind][chunk] += 1;
    }
  }
  for (int kind = 0; kind < 3; ++kind)
    for (size_t c = 0; c < chunks; ++c) sums[kind][c] /= std::max(counts[kind][c], 1.0);
  return {.forward = sums[0], .backward_input = sums[1], .backward_weight = sums[2]};
}

double bubble_with(const StepTrace& step, const pipeline::Costs& costs) {
  return pipeline::simulate(step.schedule, pipeline::make_schedules(step.schedule), costs).bubble_fraction;
}

void find_slowest(StepSummary& s) {
  if (s.ranks.size() < 2) return;
  const auto slowest = std::ranges::max_element(s.ranks, {}, &RankSummary::computed_ms);
  double all = 0;
  for (const RankSummary& rank : s.ranks) all += rank.computed_ms;
  s.slowest = slowest - s.ranks.begin();
  s.slowest_by_ms = slowest->computed_ms - (all - slowest->computed_ms) / static_cast<double>(s.ranks.size() - 1);
}

/// The figures that need the times of the work itself.
void add_measured(StepSummary& s, const StepTrace& step) {
  const auto ranks = static_cast<double>(step.ranks.size());
  double bubble = 0, under_way = 0, hidden = 0;
  for (const RankSummary& rank : s.ranks) {
    bubble += rank.bubble / ranks;
    under_way += rank.under_way_ms;
    hidden += rank.hidden_ms;
  }
  s.bubble = bubble;
  s.matched_bubble = bubble_with(step, measured_costs(step));
  if (under_way > 0) s.hidden = hidden / under_way;
  find_slowest(s);
}

}  // namespace

int64_t covered(const Interval& time, const std::vector<OperationSlice>& calls, bool (*counts)(const OperationSlice&)) {
  int64_t sum = 0;
  auto call = std::ranges::lower_bound(calls, time.begin, {}, [](const OperationSlice& w) { return w.time.end; });
  for (; call != calls.end() && call->time.begin < time.end; ++call)
    if (counts(*call)) sum += overlap(time, call->time);
  return sum;
}

std::string rank_name(const StepTrace& step, int64_t rank) {
  const mesh::Coordinates at = mesh::coordinates_of(step.mesh, rank);
  std::string places;
  for (const auto& [axis, name] : kAxisNames)
    if (step.mesh[axis] > 1) places += str_cat(places.empty() ? ": " : ", ", name, " ", at[axis]);
  return str_cat("rank ", rank, places);
}

StepSummary summary_of(const StepTrace& step) {
  StepSummary s;
  const auto ranks = static_cast<double>(step.ranks.size());
  const std::vector<Interval> windows = schedules(step);
  Interval whole = kNothing;
  for (size_t r = 0; r < step.ranks.size(); ++r) {
    const RankTrace& rank = step.ranks[r];
    whole = hull(whole, step_of(rank));
    s.clock_uncertainty_ms = std::max(s.clock_uncertainty_ms, ms(rank.clock_uncertainty));
    s.dropped += rank.dropped;
    for (const PartSlice& slice : rank.parts)
      s.part_ms[std::string(name_of(slice.part))] += ms(slice.time.length()) / ranks;
    const Interval of_rank = step_of(rank);
    for (const OperationSlice& call : rank.calls)
      s.communicated_ms[rank.communicators[static_cast<size_t>(call.communicator)]] +=
          ms(overlap(call.time, of_rank)) / ranks;
    s.ranks.push_back(rank_summary(rank, windows[static_cast<size_t>(pipeline_of(step, static_cast<int64_t>(r)))]));
  }
  s.step_ms = ms(std::max<int64_t>(whole.length(), 0));
  s.planned_bubble = bubble_with(step, pipeline::Costs::uniform(step.schedule, 1, 1, 1));
  if (!step.asynchronous) add_measured(s, step);
  return s;
}

}  // namespace ashlar::trace
