#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "core/base/error.h"
#include "core/base/table.h"
#include "launch/commands/arguments.h"
#include "launch/commands/session.h"
#include "launch/commands/subcommands.h"
#include "launch/runs/run_folder.h"
#include "launch/training/terminal_sink.h"
#include "parallel/model/parameter_count.h"

namespace ashlar::launch {

const char* const kRunsHelp =
    "ashlar runs [DIR] [--sort name|time|loss] [--json]\n"
    "\n"
    "The runs in DIR (default: runs) and up to three directories below it, one per line: model (layers x width:\n"
    "parameters), mesh (tensor x pipeline x data), steps, mean loss of the last 20 steps, best and last validation\n"
    "loss, state, time of the last change (UTC). Nothing is written; a run under way may be read.\n"
    "\n"
    "--json writes one object: version (1), runs, skipped (paths). Each run has path, name, state (running, finished,\n"
    "stopped, failed, broken off, unknown), state_text, resumable, step, problems (texts); and where known: steps,\n"
    "parameters, mesh {tensor, pipeline, data, expert}, loss, best_val_loss, best_val_step, val_loss, committed_step,\n"
    "time (seconds since 1970).\n";

namespace {

enum class RunOrder : uint8_t { kName, kTime, kLoss };
constexpr auto names_of(RunOrder) { return enum_names<RunOrder>("name", "time", "loss"); }

/// What the table says about a run.
struct RunSummary {
  runs::RunFolder run;
  std::optional<double> loss, best, last;
  int64_t best_step = 0;
};

RunSummary summary_of(runs::RunFolder run) {
  RunSummary s;
  const runs::Series &loss = run.series("loss"), &validation = run.series("val_loss");
  const size_t recent = std::min<size_t>(loss.size(), 20);
  double sum = 0;
  for (size_t i = loss.size() - recent; i < loss.size(); ++i) sum += loss[i].value;
  if (recent > 0) s.loss = sum / static_cast<double>(recent);
  if (!validation.empty()) {
    const auto best = std::ranges::min_element(validation, {}, &runs::Point::value);
    s.best = best->value;
    s.best_step = best->step;
    s.last = validation.back().value;
  }
  s.run = std::move(run);
  return s;
}

nlohmann::ordered_json to_json(const RunSummary& s) {
  const runs::RunFolder& run = s.run;
  nlohmann::ordered_json j = {{"path", run.path.string()},
                              {"name", run.name},
                              {"state", std::string(name_of(run.state))},
                              {"state_text", run.state_text()},
                              {"resumable", run.resumable()},
                              {"step", run.step()},
                              {"problems", run.problems}};
  if (run.config) {
    const config::MeshSection& m = run.config->mesh;
    j["steps"] = run.config->train.steps;
    j["parameters"] = model::count_parameters(run.config->model).total();
    j["mesh"] = {{"tensor", m.tensor}, {"pipeline", m.pipeline}, {"data", m.data}, {"expert", m.expert}};
  }
  if (s.loss) j["loss"] = *s.loss;
  if (s.best) {
    j["best_val_loss"] = *s.best;
    j["best_val_step"] = s.best_step;
    j["val_loss"] = *s.last;
  }
  if (run.committed) j["committed_step"] = *run.committed;
  if (run.last_time > 0) j["time"] = run.last_time;
  return j;
}

using TableRow = std::vector<std::string>;

TableRow row_of(const RunSummary& s, const std::string& name) {
  const runs::RunFolder& run = s.run;
  const auto loss = [](const std::optional<double>& v) { return v ? absl::StrFormat("%.4f", *v) : std::string("-"); };
  TableRow row = {escaped(name), "-", "-", str_cat(run.step())};
  if (run.config) {
    const config::RunConfig& c = *run.config;
    row[1] = str_cat(c.model.n_layers, "x", c.model.d_model, ": ",
                     training::human_count(static_cast<double>(model::count_parameters(c.model).total())));
    row[2] = str_cat(c.mesh.tensor, "x", c.mesh.pipeline, "x", c.mesh.data);
    row[3] += str_cat("/", c.train.steps);
  }
  const std::string best = s.best ? str_cat(loss(s.best), " at ", s.best_step) : "-";
  row.insert(row.end(), {loss(s.loss), best, loss(s.last)});
  row.push_back(run.last_time <= 0
                    ? "-"
                    : absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixSeconds(static_cast<int64_t>(run.last_time)),
                                       absl::UTCTimeZone()));
  row.push_back(run.state_text());
  return row;
}

void sort_runs(std::vector<RunSummary>& all, RunOrder order) {
  // The best run comes first, and the latest. Runs without a loss come last.
  const auto key = [&](const RunSummary& s) {
    return order == RunOrder::kTime ? -s.run.last_time : s.best.value_or(s.loss.value_or(1e300));
  };
  if (order != RunOrder::kName) std::ranges::stable_sort(all, {}, key);
}

}  // namespace

int run_runs_command(Words words, Session& session) {
  Arguments arguments("runs", words);
  const bool json = arguments.flag("--json");
  const auto order = arguments.choice<RunOrder>("--sort", RunOrder::kName);
  const std::vector<std::string> dirs = arguments.positionals();
  if (dirs.size() > 1) arguments.expect(dirs, 1, "one directory", "; usage: ashlar runs [DIR]");
  const std::filesystem::path dir = dirs.empty() ? "runs" : dirs[0];
  const runs::FoundRuns found = runs::find_runs(dir);
  std::vector<RunSummary> all;
  for (const auto& path : found.runs) all.push_back(summary_of(runs::read_run(path)));
  sort_runs(all, order);
  if (json) {
    nlohmann::ordered_json j = {
        {"version", 1}, {"runs", nlohmann::json::array()}, {"skipped", nlohmann::json::array()}};
    for (const RunSummary& s : all) j["runs"].push_back(to_json(s));
    for (const auto& path : found.skipped) j["skipped"].push_back(path.string());
    session.out << j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  std::vector<TableRow> rows = {
      {"run", "model", "mesh", "step", "loss", "best val", "last val", "changed (UTC)", "state"}};
  for (const RunSummary& s : all) {
    const std::string name = s.run.path == dir ? s.run.name : s.run.path.lexically_relative(dir).string();
    rows.push_back(row_of(s, name));
  }
  for (const std::string& line : aligned_lines(rows)) session.out << line << "\n";
  for (const RunSummary& s : all)
    for (const std::string& problem : s.run.problems)
      session.log.warn(str_cat("[runs] ", printable(s.run.path.string()), ": ", problem));
  for (const auto& path : found.skipped) session.err << "skipped " << printable(path.string()) << ": no run\n";
  if (all.empty()) session.err << "no runs in " << printable(dir.string()) << "\n";
  return 0;
}

}  // namespace ashlar::launch
