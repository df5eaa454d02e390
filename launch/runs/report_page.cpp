#include "launch/runs/report_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "launch/training/engine_options.h"
#include "launch/training/memory.h"
#include "parallel/mesh/mesh.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::runs {

using nlohmann::ordered_json;

namespace {

struct Chart {
  const char* key;
  const char* title;
};
constexpr std::array<Chart, 13> kCharts = {{{"loss", "Training loss (dots: validation)"},
                                            {"val_loss", "Validation loss"},
                                            {"val_bpb", "Validation: bits per byte"},
                                            {"grad_norm", "Gradient norm before clipping"},
                                            {"lr", "Learning rate"},
                                            {"tokens_per_sec", "Tokens per second"},
                                            {"step_ms", "Time of a step (ms)"},
                                            {"data_wait_ms", "Wait for data (ms)"},
                                            {"save_ms", "Training waits for a save (ms)"},
                                            {"val_seconds", "Time of a validation (s)"},
                                            {"peak_memory_bytes", "Peak memory of a process (bytes)"},
                                            {"mfu", "Model FLOPs utilization"},
                                            {"gpu_memory_bytes", "GPU memory (bytes)"}}};

/// [steps, tokens, seconds, values] of a series, with at most 2000 points.
ordered_json columns_of(const Series& series) {
  constexpr size_t kIntervals = 1000;
  std::vector<const Point*> kept;
  const size_t length = series.size() <= 2 * kIntervals ? 1 : (series.size() + kIntervals - 1) / kIntervals;
  for (size_t begin = 0; begin < series.size(); begin += length) {
    const auto first = series.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = series.begin() + static_cast<std::ptrdiff_t>(std::min(begin + length, series.size()));
    const auto [low, high] =
        std::minmax_element(first, end, [](const Point& a, const Point& b) { return a.value < b.value; });
    kept.push_back(&*std::min(low, high));
    if (low != high) kept.push_back(&*std::max(low, high));
  }
  ordered_json columns = {ordered_json::array(), ordered_json::array(), ordered_json::array(), ordered_json::array()};
  for (const Point* p : kept) {
    columns[0].push_back(p->step);
    columns[1].push_back(p->tokens);
    columns[2].push_back(std::round(p->seconds * 1e3) / 1e3);
    columns[3].push_back(p->value);
  }
  return columns;
}

bool is_expert_load(const std::string& key) { return key.starts_with("stats/") && key.ends_with(".moe/max_over_mean"); }

/// The keys of a configuration with their values, from its TOML text.
std::vector<std::pair<std::string, std::string>> config_values(const config::RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> values;
  std::istringstream lines(config::to_toml(config));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("["))
      section = line.substr(1, line.find(']') - 1);
    else if (equals != std::string::npos)
      values.emplace_back(str_cat(section, ".", line.substr(0, equals)), line.substr(equals + 3));
  }
  return values;
}

/// A figure of the plan beside the measured one, with units. `difference` is the measured figure relative to the
/// planned one in percent; empty where one of them is unknown.
struct PlanRow {
  std::string what, planned, measured, difference;
};

std::vector<double> values_after(const Series& series, int64_t step) {
  std::vector<double> values;
  for (const Point& p : series)
    if (p.step > step) values.push_back(p.value);
  return values;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string difference_text(double planned, double measured) {
  return planned > 0 ? absl::StrFormat("%+.1f%%", 100 * (measured / planned - 1)) : "";
}

std::string bytes_text(double bytes) { return training::human_bytes(static_cast<int64_t>(bytes)); }

double sum_of(const Series& series) {
  double sum = 0;
  for (const Point& p : series) sum += p.value;
  return sum;
}

/// The share of a step in which the rank with the most work of its own waits for others, over the measured steps.
/// Negative if the run did not measure it.
double busiest_wait(const RunFolder& run) {
  const std::vector<double> own = values_after(run.series("slowest_rank_ms"), run.plan->step);
  const std::vector<double> all = values_after(run.series("step_ms"), run.plan->step);
  return own.empty() || all.empty() ? -1 : 1 - median_of(own) / median_of(all);
}

/// Compares the plan of a run's last start with the steps after it: medians of time and throughput, the highest memory.
/// Empty without a plan or without such steps.
std::vector<PlanRow> plan_and_measured(const RunFolder& run) {
  if (!run.plan) return {};
  const PlannedRun& plan = *run.plan;
  const std::vector<double> times = values_after(run.series("step_ms"), plan.step);
  if (times.empty()) return {};
  std::vector<PlanRow> rows;
  const double ms = median_of(times), planned_ms = 1e3 * plan.step_seconds;
  rows.push_back({.what = "time of a step",
                  .planned = planned_ms > 0 ? absl::StrFormat("%.4g ms (%.4g to %.4g)", planned_ms,
                                                              1e3 * plan.low_seconds, 1e3 * plan.high_seconds)
                                            : "unknown (start.txt says why)",
                  .measured = absl::StrFormat("%.4g ms", ms),
                  .difference = difference_text(planned_ms, ms)});
  if (const std::vector<double> rates = values_after(run.series("tokens_per_sec"), plan.step); !rates.empty())
    rows.push_back({.what = "tokens per second",
                    .planned = plan.tokens_per_second > 0 ? absl::StrFormat("%.0f", plan.tokens_per_second) : "unknown",
                    .measured = absl::StrFormat("%.0f", median_of(rates)),
                    .difference = difference_text(plan.tokens_per_second, median_of(rates))});
  const bool gpu = !run.series("gpu_memory_bytes").empty();
  const std::vector<double> memory =
      values_after(run.series(gpu ? "gpu_memory_bytes" : "peak_memory_bytes"), plan.step);
  if (!memory.empty()) {
    const double most = std::ranges::max(memory);
    rows.push_back({.what = gpu ? "memory of a GPU" : "memory of a process",
                    .planned = str_cat(bytes_text(plan.memory_bytes),
                                       plan.capacity_bytes > 0 ? str_cat(" of ", bytes_text(plan.capacity_bytes)) : ""),
                    .measured = bytes_text(most),
                    .difference = difference_text(plan.memory_bytes, most)});
  }
  if (run.config && run.config->mesh.pipeline > 1) {
    const double wait = busiest_wait(run);
    rows.push_back({.what = "bubble; measured: the busiest rank waits",
                    .planned = planned_ms > 0 ? absl::StrFormat("%.1f%%", 100 * plan.bubble) : "unknown",
                    .measured = wait < 0 ? "not measured" : absl::StrFormat("%.1f%%", 100 * wait),
                    .difference = ""});
  }
  return rows;
}

/// Seconds of a run by what they went to.
struct TimeSpent {
  double steps = 0, data_wait = 0;  ///< `data_wait` is a part of `steps`
  double saves = 0, validations = 0;
  int64_t num_saves = 0, num_validations = 0;
};
TimeSpent time_spent(const RunFolder& run) {
  return {.steps = sum_of(run.series("step_ms")) / 1e3,
          .data_wait = sum_of(run.series("data_wait_ms")) / 1e3,
          .saves = sum_of(run.series("save_ms")) / 1e3,
          .validations = sum_of(run.series("val_seconds")),
          .num_saves = std::ssize(run.series("save_ms")),
          .num_validations = std::ssize(run.series("val_loss"))};
}

/// [rank, coordinate along pipeline, data (with experts), expert, tensor] of at most kMostRanks ranks.
ordered_json ranks_data(const config::MeshSection& section) {
  constexpr int64_t kMostRanks = 64;
  const mesh::MeshShape shape = training::shape_of(section);
  ordered_json ranks = ordered_json::array();
  for (int64_t rank = 0; rank < std::min(shape.ranks(), kMostRanks); ++rank) {
    const mesh::Coordinates at = mesh::coordinates_of(shape, rank);
    ranks.push_back(
        {rank, at[Axis::kPipeline], mesh::index_of(shape, at, kSampleAxes), at[Axis::kExpert], at[Axis::kTensor]});
  }
  return ranks;
}

/// The events without samples, and the samples: of many, kMostSamples that are spread over the run.
void add_events(const RunFolder& run, ordered_json& j) {
  constexpr size_t kMostSamples = 50;
  std::vector<const RunEvent*> samples;
  for (const RunEvent& e : run.events) {
    if (e.kind == "sample") {
      samples.push_back(&e);
      continue;
    }
    std::string text = e.text;
    if (!e.version.empty()) text = str_cat("version ", e.version);
    if (!e.signal.empty()) text = str_cat("by ", e.signal);
    if (e.code >= 0) text = str_cat("code ", e.code, ": ", text);
    if (e.ms >= 0) text = str_cat("training waited ", e.ms, " ms");
    if (e.kind == "saved") text = "the checkpoint is complete";
    if (e.val_loss >= 0) text += str_cat(text.empty() ? "" : ", ", "val_loss ", e.val_loss);
    j["events"].push_back({{"time", e.time}, {"kind", e.kind}, {"step", e.step}, {"text", text}});
  }
  const size_t shown = std::min(samples.size(), kMostSamples);
  for (size_t i = 0; i < shown; ++i) {
    const RunEvent& e = *samples[shown == 1 ? 0 : i * (samples.size() - 1) / (shown - 1)];
    j["samples"].push_back({{"step", e.step}, {"prompt", e.prompt}, {"text", e.text}});
  }
}

ordered_json run_data(const RunFolder& run) {
  ordered_json j = {{"name", run.name}, {"path", run.path.string()}, {"state", run.state_text()}, {"step", run.step()}};
  j["checkpoints"] = run.checkpoints;
  j["problems"] = run.problems;
  if (run.config) {
    const config::MeshSection& m = run.config->mesh;
    j["parameters"] = model::count_parameters(run.config->model).total();
    const std::string chunks = m.virtual_stages > 1 ? str_cat(", ", m.virtual_stages, " chunks") : "";
    j["layout"] = str_cat("tensor ", m.tensor, m.sequence_parallel ? " (sequence parallel)" : "", ", pipeline ",
                          m.pipeline, m.pipeline > 1 ? str_cat(" (", name_of(m.schedule), chunks, ")") : "", ", data ",
                          m.data, m.expert > 1 ? str_cat(" (expert ", m.expert, ")") : "");
    j["steps"] = run.config->train.steps;
    j["num_ranks"] = training::shape_of(m).ranks();
    j["ranks"] = ranks_data(m);
  }
  for (const auto& [key, series] : run.metrics) {
    const bool shown = std::ranges::any_of(kCharts, [&](const Chart& c) { return key == c.key; });
    if ((shown || is_expert_load(key)) && !series.empty()) j["series"][key] = columns_of(series);
  }
  for (const PlanRow& row : plan_and_measured(run))
    j["plan"].push_back({row.what, row.planned, row.measured, row.difference});
  const TimeSpent t = time_spent(run);
  j["spent"] = {{"steps", t.steps},         {"data_wait", t.data_wait},
                {"saves", t.saves},         {"validations", t.validations},
                {"num_saves", t.num_saves}, {"num_validations", t.num_validations}};
  add_events(run, j);
  return j;
}

}  // namespace

std::string report_html(const ReportPage& page) {
  ordered_json data = {
      {"runs", ordered_json::array()}, {"charts", ordered_json::array()}, {"keys", ordered_json::array()}};
  for (const Chart& chart : kCharts) data["charts"].push_back({chart.key, chart.title});
  std::vector<std::string> loads, keys;
  std::vector<std::map<std::string, std::string>> values;
  for (const RunFolder& run : page.runs) {
    data["runs"].push_back(run_data(run));
    for (const auto& [key, series] : run.metrics)
      if (is_expert_load(key) && std::ranges::find(loads, key) == loads.end()) loads.push_back(key);
    values.emplace_back();
    if (!run.config) continue;
    for (const auto& [key, value] : config_values(*run.config)) {
      values.back()[key] = value;
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  for (const std::string& key : loads) {
    constexpr std::string_view kBefore = "stats/", kAfter = ".moe/max_over_mean";
    const std::string layer = key.substr(kBefore.size(), key.size() - kBefore.size() - kAfter.size());
    data["charts"].push_back({key, str_cat("Busiest expert relative to the mean, ", layer)});
  }
  for (const std::string& key : keys) {
    ordered_json row = {{"key", key}, {"values", ordered_json::array()}, {"who", ordered_json::array()}};
    for (const auto& of_run : values) {
      const auto found = of_run.find(key);
      row["values"].push_back(found == of_run.end() ? "" : found->second);
      row["who"].push_back(found == of_run.end() ? "" : page.who(key, found->second));
    }
    data["keys"].push_back(std::move(row));
  }
  const std::string text = data.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  // Inside a script element, "<" could end it or begin a comment.
  return absl::StrReplaceAll(kReportTemplate, {{"@DATA@", absl::StrReplaceAll(text, {{"<", "\\u003c"}})}});
}

}  // namespace ashlar::runs
