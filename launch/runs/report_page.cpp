#include "launch/runs/report_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "core/base/error.h"
#include "core/base/strings.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::runs {

using nlohmann::ordered_json;

namespace {

struct Chart {
  const char* key;
  const char* title;
};
constexpr std::array<Chart, 10> kCharts = {{{"loss", "Training loss (dots: validation)"},
                                            {"val_loss", "Validation loss"},
                                            {"grad_norm", "Gradient norm before clipping"},
                                            {"lr", "Learning rate"},
                                            {"tokens_per_sec", "Tokens per second"},
                                            {"step_ms", "Time of a step (ms)"},
                                            {"data_wait_ms", "Wait for data (ms)"},
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

ordered_json run_data(const RunFolder& run) {
  ordered_json j = {{"name", run.name}, {"path", run.path.string()}, {"state", run.state_text()}, {"step", run.step()}};
  j["checkpoints"] = run.checkpoints;
  j["problems"] = run.problems;
  if (run.config) {
    const config::MeshSection& m = run.config->mesh;
    j["parameters"] = model::count_parameters(run.config->model).total();
    j["layout"] =
        str_cat("tensor ", m.tensor, m.sequence_parallel ? " (sequence parallel)" : "", ", pipeline ", m.pipeline,
                m.pipeline > 1 ? str_cat(" (", name_of(m.schedule), ", ", m.virtual_stages, " chunks)") : "", ", data ",
                m.data, m.expert > 1 ? str_cat(" (expert ", m.expert, ")") : "");
    j["steps"] = run.config->train.steps;
  }
  for (const auto& [key, series] : run.metrics) {
    const bool shown = std::ranges::any_of(kCharts, [&](const Chart& c) { return key == c.key; });
    if ((shown || is_expert_load(key)) && !series.empty()) j["series"][key] = columns_of(series);
  }
  for (const RunEvent& e : run.events) {
    std::string text = e.text;
    if (!e.version.empty()) text = str_cat("version ", e.version);
    if (!e.signal.empty()) text = str_cat("by ", e.signal);
    if (e.code >= 0) text = str_cat("code ", e.code, ": ", text);
    j["events"].push_back({{"time", e.time}, {"kind", e.kind}, {"step", e.step}, {"text", text}});
  }
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
