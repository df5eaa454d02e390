#include "launch/plan/report.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "core/base/strings.h"
#include "core/base/table.h"
#include "launch/training/engine_options.h"
#include "launch/training/layout.h"
#include "launch/training/memory.h"

namespace ashlar::plan {

using training::human_bytes;

namespace {

/// "1.23 GB of 4.00 GB" and, with experts over ranks, how much more one-sided routing needs.
std::string total_text(const Planned& planned, const Target& target) {
  const MemoryPlan& m = planned.memory;
  std::string text = human_bytes(m.bytes);
  if (m.one_sided_bytes > m.bytes)
    text += str_cat(" (up to ", human_bytes(m.one_sided_bytes), " if all tokens go to the experts of one rank)");
  if (target.capacity > 0) text += str_cat(" of ", human_bytes(target.capacity));
  return text;
}

double hours_of(const Planned& planned) {
  return planned.time->seconds * static_cast<double>(planned.run.train.steps) / 3600;
}

std::vector<std::string> memory_report(const Planned& planned, const Target& target) {
  const MemoryPlan& m = planned.memory;
  std::vector<std::string> lines = {str_cat("memory of rank ", m.worst().rank, ", which needs most",
                                            planned.run.mesh.pipeline > 1 ? str_cat(" (stage ", m.stage, ")") : "",
                                            ":")};
  std::vector<std::vector<std::string>> rows;
  for (const MemoryPart& part : m.parts) rows.push_back({"", part.name, human_bytes(part.bytes), part.note});
  for (const std::string& line : aligned_lines(rows)) lines.push_back(line);
  std::string verdict;
  if (target.capacity > 0)
    verdict =
        absl::StrFormat(", %.0f%%: %s", 100.0 * static_cast<double>(m.bytes) / static_cast<double>(target.capacity),
                        !fits(planned, target)                 ? "does not fit"
                        : m.one_sided_bytes <= target.capacity ? "fits"
                                                               : "fits while tokens are spread over the experts");
  lines.push_back(str_cat("total ", total_text(planned, target), verdict));
  for (const MemoryPart& part : m.host)
    lines.push_back(
        str_cat("host memory: ", part.name, " ", human_bytes(part.bytes), part.note.empty() ? "" : ", ", part.note));
  return lines;
}

/// "1.23 s (1.05 s to 1.41 s)" of `steps` steps.
std::string times_text(const StepTime& t, double steps) {
  return str_cat(duration_text(steps * t.seconds), " (", duration_text(steps * t.low), " to ",
                 duration_text(steps * t.high), ")");
}

std::string time_line(const Planned& planned, const Target& target) {
  if (!planned.time) return str_cat("time unknown: ", planned.no_time);
  const StepTime& t = *planned.time;
  std::string text = str_cat("a step takes ", times_text(t, 1), " on ", target.name());
  const int64_t steps = planned.run.train.steps;
  if (steps > 0) text += str_cat("; ", steps, " steps take ", times_text(t, static_cast<double>(steps)));
  return text;
}

constexpr size_t kStartColumns = 100;

/// " activations kept 1.1 GB, weights 12.3 MB, ...": the largest parts, at most four and as many as `columns` hold.
std::string largest_parts(const MemoryPlan& m, size_t columns) {
  constexpr size_t kMost = 4;
  constexpr std::string_view kMore = ", ...";
  std::vector<MemoryPart> parts = m.parts;
  std::ranges::stable_sort(parts, std::greater(), &MemoryPart::bytes);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = str_cat(i == 0 ? " " : ", ", parts[i].name, " ", human_bytes(parts[i].bytes));
    const size_t rest = i + 1 == parts.size() ? 0 : kMore.size();
    if (i > 0 && (i == kMost || text.size() + part.size() + rest > columns)) return str_cat(text, kMore);
    text += part;
  }
  return text;
}

std::vector<std::string> time_report(const Planned& planned, const Target& target, double price) {
  std::vector<std::string> lines = {time_line(planned, target)};
  if (!planned.time) return lines;
  const StepTime& t = *planned.time;
  std::vector<std::vector<std::string>> rows;
  for (const TimeLine& line : t.lines) {
    rows.push_back({"", line.what, duration_text(line.seconds),
                    line.hidden > 0 ? str_cat("+ ", duration_text(line.hidden), " hidden") : "",
                    line.flops > 0 ? absl::StrFormat("%.3g flop", line.flops) : "",
                    line.bytes > 0 ? human_bytes(static_cast<int64_t>(line.bytes)) : ""});
  }
  for (const std::string& line : aligned_lines(rows)) lines.push_back(line);
  lines.push_back(absl::StrFormat("%.0f tokens/s, %.3g flop a step, %.1f%% of the peak of %s", t.tokens_per_second(),
                                  t.model_flops, 100 * t.share_of_peak(), target.name()));
  if (planned.run.mesh.pipeline > 1)
    lines.push_back(absl::StrFormat("bubble %.1f%% of the time (%s, %d %s)", 100 * t.bubble,
                                    std::string(pipeline::name_of(planned.run.mesh.schedule)), t.micro_batches,
                                    t.micro_batches == 1 ? "micro-batch" : "micro-batches"));
  if (price > 0 && planned.run.train.steps > 0)
    lines.push_back(absl::StrFormat("cost %.0f: %.4g hours of %d ranks at %g an hour each",
                                    price * hours_of(planned) * static_cast<double>(planned.ranks()), hours_of(planned),
                                    planned.ranks(), price));
  return lines;
}

}  // namespace

std::vector<std::string> start_lines(const Planned& planned, const Target& target) {
  const MemoryPlan& m = planned.memory;
  std::vector<std::string> lines = {str_cat("plan: ", fits(planned, target) ? "" : "does not fit: ", "memory ",
                                            human_bytes(m.bytes),
                                            target.capacity > 0 ? str_cat(" of ", human_bytes(target.capacity)) : "",
                                            planned.ranks() > 1 ? str_cat(", rank ", m.worst().rank) : "", ":")};
  lines.back() += largest_parts(m, kStartColumns - lines.back().size());
  if (m.one_sided_bytes > m.bytes)
    lines.push_back(
        str_cat("plan: up to ", human_bytes(m.one_sided_bytes), " if all tokens go to the experts of one rank"));
  if (!planned.time) {
    const std::string why = str_cat("plan: time unknown: ", planned.no_time);
    lines.push_back(why.size() <= kStartColumns ? why : "plan: time unknown; start.txt and ashlar plan say why");
    return lines;
  }
  const StepTime& t = *planned.time;
  lines.push_back(str_cat("plan: a step takes ", times_text(t, 1)));
  if (const int64_t steps = planned.run.train.steps; steps > 0)
    lines.back() += str_cat("; ", steps, " steps ", times_text(t, static_cast<double>(steps)));
  return lines;
}

std::vector<std::string> report(const Planned& planned, const Target& target, double price) {
  const config::RunConfig& c = planned.run;
  std::vector<std::string> lines = {absl::StrFormat(
      "%d %s = %s, %d sequences of %d tokens a step in micro-batches of %d, %s, on %s", planned.ranks(),
      planned.ranks() == 1 ? "rank" : "ranks", training::mesh_text(training::shape_of(c.mesh)), c.train.global_batch,
      c.train.sequence_length, c.train.micro_batch, std::string(name_of(c.run.dtype)), target.name())};
  for (const std::string& line : memory_report(planned, target)) lines.push_back(line);
  for (const std::string& line : time_report(planned, target, price)) lines.push_back(line);
  return lines;
}

nlohmann::ordered_json to_json(const Planned& planned, const Target& target, double price) {
  const config::RunConfig& c = planned.run;
  nlohmann::ordered_json json;
  json["ranks"] = planned.ranks();
  json["mesh"] = {
      {"pipeline", c.mesh.pipeline}, {"data", c.mesh.data}, {"tensor", c.mesh.tensor}, {"expert", c.mesh.expert}};
  json["device"] = target.name();
  json["capacity_bytes"] = target.capacity;
  const auto parts = [](const std::vector<MemoryPart>& of) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const MemoryPart& part : of) list.push_back({{"name", part.name}, {"bytes", part.bytes}});
    return list;
  };
  const MemoryPlan& m = planned.memory;
  json["memory"] = {{"rank", m.worst().rank},
                    {"stage", m.stage},
                    {"parts", parts(m.parts)},
                    {"bytes", m.bytes},
                    {"one_sided_bytes", m.one_sided_bytes},
                    {"fits", fits(planned, target)},
                    {"host", parts(m.host)}};
  if (!planned.time) {
    json["time"] = nullptr;
    return json;
  }
  const StepTime& t = *planned.time;
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (const TimeLine& line : t.lines)
    lines.push_back({{"what", line.what},
                     {"seconds", line.seconds},
                     {"hidden", line.hidden},
                     {"flops", line.flops},
                     {"bytes", line.bytes}});
  json["time"] = {{"step_seconds", t.seconds},
                  {"low", t.low},
                  {"high", t.high},
                  {"tokens_per_second", t.tokens_per_second()},
                  {"flops", t.model_flops},
                  {"share_of_peak", t.share_of_peak()},
                  {"bubble", t.bubble},
                  {"lines", lines}};
  if (c.train.steps > 0) {
    json["time"]["run_seconds"] = t.seconds * static_cast<double>(c.train.steps);
    if (price > 0) json["cost"] = price * hours_of(planned) * static_cast<double>(planned.ranks());
  }
  return json;
}

}  // namespace ashlar::plan
