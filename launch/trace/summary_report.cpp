#include "launch/trace/summary_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "core/base/printable.h"
#include "core/base/table.h"

namespace ashlar::trace {

namespace {

using nlohmann::ordered_json;

constexpr size_t kMostRows = 32;  // ranks in the table; --json has all

std::string percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }
std::string ms_text(double ms) { return absl::StrFormat("%.2f ms", ms); }

std::string head_line(const StepTrace& step, const StepSummary& s) {
  std::string mesh;
  for (const auto& [axis, name] : kAxisNames)
    if (step.mesh[axis] > 1) mesh += str_cat(mesh.empty() ? " (" : " x ", name, " ", step.mesh[axis]);
  if (!mesh.empty()) mesh += ")";
  const auto ranks = std::ssize(step.ranks);
  return str_cat("step ", step.step, ": ", ms_text(s.step_ms), " on ", ranks, ranks == 1 ? " rank" : " ranks", mesh,
                 ", ", name_of(step.schedule.kind), ", ", step.schedule.micro_batches,
                 step.schedule.micro_batches == 1 ? " micro-batch" : " micro-batches",
                 s.clock_uncertainty_ms == 0
                     ? "; one clock"
                     : absl::StrFormat("; clocks compared to within %.3f ms", s.clock_uncertainty_ms));
}

std::vector<std::string> rank_table(const StepTrace& step, const StepSummary& s) {
  std::vector<std::vector<std::string>> rows;
  for (size_t r = 0; r < std::min(s.ranks.size(), kMostRows); ++r) {
    const RankSummary& rank = s.ranks[r];
    rows.push_back({rank_name(step, static_cast<int64_t>(r)), str_cat("bubble ", percent(rank.bubble)),
                    str_cat("computed ", ms_text(rank.computed_ms)),
                    str_cat("communicated ", ms_text(rank.communicated_ms)),
                    str_cat("under way ", ms_text(rank.under_way_ms)),
                    rank.under_way_ms > 0 ? str_cat(percent(rank.hidden_ms / rank.under_way_ms), " hidden") : ""});
  }
  std::vector<std::string> lines = aligned_lines(rows);
  if (s.ranks.size() > kMostRows)
    lines.push_back(str_cat("... and ", s.ranks.size() - kMostRows, " more ranks (--json has them)"));
  return lines;
}

std::string bubble_line(const StepTrace& step, const StepSummary& s, std::optional<double> predicted) {
  if (step.schedule.stages == 1) return "bubble: none, the pipeline has one stage";
  std::string line =
      str_cat("bubble: ", percent(*s.bubble), " of the schedule on average; planned ", percent(s.planned_bubble),
              " with equal chunks, ", percent(*s.matched_bubble), " with the measured time of each chunk");
  if (predicted) line += str_cat("; ashlar plan predicts ", percent(*predicted));
  return line;
}

std::string communication_line(const StepSummary& s) {
  if (!s.hidden) return "communication: none between ranks";
  double under_way = 0, communicated = 0;
  for (const RankSummary& rank : s.ranks) {
    under_way += rank.under_way_ms / static_cast<double>(s.ranks.size());
    communicated += rank.communicated_ms / static_cast<double>(s.ranks.size());
  }
  std::string where;
  for (const auto& [name, ms] : s.communicated_ms)
    where += absl::StrFormat("%s%s %.2f", where.empty() ? " (" : ", ", escaped(name, 40), ms);
  if (!where.empty()) where += ")";
  return str_cat("communication: under way for ", ms_text(under_way), " a rank, ", percent(*s.hidden),
                 " of it hidden behind the rank's own work; ranks spent ", ms_text(communicated), " each in it", where);
}

std::string slowest_line(const StepTrace& step, const StepSummary& s) {
  if (!s.slowest) return "slowest: there is one rank";
  const double own = s.ranks[static_cast<size_t>(*s.slowest)].computed_ms, others = own - s.slowest_by_ms;
  return str_cat("slowest: ", rank_name(step, *s.slowest), " computed ", ms_text(own), ", ", ms_text(s.slowest_by_ms),
                 others > 0 ? str_cat(" (", percent(s.slowest_by_ms / others), ")") : "",
                 " more than the other ranks on average");
}

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json json_of_ranks(const StepTrace& step, const StepSummary& s) {
  ordered_json ranks = ordered_json::array();
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    const RankSummary& rank = s.ranks[r];
    ordered_json at;
    const mesh::Coordinates place = mesh::coordinates_of(step.mesh, static_cast<int64_t>(r));
    for (const auto& [axis, name] : kAxisNames) at[std::string(name)] = place[axis];
    ranks.push_back({{"rank", r}, {"host", step.ranks[r].host}, {"at", at}});
    if (step.asynchronous) continue;
    ranks.back().update({{"bubble", rank.bubble},
                         {"computed_ms", rank.computed_ms},
                         {"communicated_ms", rank.communicated_ms},
                         {"under_way_ms", rank.under_way_ms},
                         {"hidden_ms", rank.hidden_ms}});
  }
  return ranks;
}

}  // namespace

std::vector<std::string> summary_lines(const StepTrace& step, const StepSummary& s, std::optional<double> predicted) {
  std::vector<std::string> lines = {head_line(step, s)};
  if (s.dropped > 0)
    lines.push_back(str_cat("incomplete: ", s.dropped, " slices beyond ", kMostSlices, " a rank were not kept"));
  if (step.asynchronous) {
    lines.push_back(str_cat("bubble: planned ", percent(s.planned_bubble),
                            " with equal chunks; not measured, nor are overlap and the slowest rank: the times are "
                            "those of the host, which queues work that the device runs later"));
    return lines;
  }
  if (s.ranks.size() > 1)
    for (std::string& row : rank_table(step, s)) lines.push_back(std::move(row));
  lines.push_back(bubble_line(step, s, predicted));
  lines.push_back(communication_line(s));
  lines.push_back(slowest_line(step, s));
  return lines;
}

ordered_json summary_json(const StepTrace& step, const StepSummary& s, std::optional<double> predicted) {
  ordered_json mesh;
  for (const auto& [axis, name] : kAxisNames) mesh[std::string(name)] = step.mesh[axis];
  ordered_json slowest = nullptr;
  if (s.slowest)
    slowest = {{"rank", *s.slowest},
               {"computed_ms", s.ranks[static_cast<size_t>(*s.slowest)].computed_ms},
               {"more_than_others_ms", s.slowest_by_ms}};
  return {{"step", step.step},
          {"unix_time", step.unix_time},
          {"mesh", mesh},
          {"schedule", name_of(step.schedule.kind)},
          {"micro_batches", step.schedule.micro_batches},
          {"virtual_stages", step.schedule.virtual_stages},
          {"device_times", !step.asynchronous},
          {"step_ms", s.step_ms},
          {"clock_uncertainty_ms", s.clock_uncertainty_ms},
          {"dropped_slices", s.dropped},
          {"bubble", number_or_null(s.bubble)},
          {"planned_bubble", s.planned_bubble},
          {"matched_bubble", number_or_null(s.matched_bubble)},
          {"predicted_bubble", number_or_null(predicted)},
          {"communication_hidden", number_or_null(s.hidden)},
          {"slowest", slowest},
          {"part_ms", s.part_ms},
          {"communicated_ms", s.communicated_ms},
          {"ranks", json_of_ranks(step, s)}};
}

}  // namespace ashlar::trace
