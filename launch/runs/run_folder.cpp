#include "launch/runs/run_folder.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/base/error_text.h"
#include "core/io/json.h"
#include "core/io/posix_file.h"
#include "launch/training/directory_lock.h"
#include "launch/training/run_directory.h"
#include "parallel/checkpoint/find.h"

namespace ashlar::runs {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// Calls `use` with each complete line that is a JSON object. The last line is incomplete without a line break.
void for_each_row(const fs::path& file, RunFolder& run, const std::function<bool(const json&)>& use) {
  if (!fs::exists(file)) return;
  io::require_regular_file(file, "runs");
  std::ifstream in(file);
  if (!in) run.problems.push_back(str_cat(file.filename().string(), " cannot be read"));
  int64_t odd = 0;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const std::optional<json> row = io::try_parse_json(line);
    odd += row && row->is_object() && use(*row) ? 0 : 1;
  }
  if (odd > 0)
    run.problems.push_back(
        str_cat(file.filename().string(), ": ", odd, odd == 1 ? " line is" : " lines are", " not a row of a run"));
}

double number_or(const json& row, const char* key, double otherwise) {
  const auto at = row.find(key);
  return at != row.end() && at->is_number() ? at->get<double>() : otherwise;
}

std::string text_of(const json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : "";
}

/// Reads the rows of metrics.jsonl into series. A row of a step that was seen before replaces the earlier ones.
class MetricsReader {
 public:
  explicit MetricsReader(RunFolder& run) : run_(run) {}

  bool add(const json& row) {
    const auto step = row.find("step");
    if (step == row.end() || !step->is_number_integer()) return false;
    at_.step = step->get<int64_t>();
    if (row.contains("loss")) {
      const Series& before = run_.metrics["step_ms"];
      cut(run_.metrics["step_ms"]);
      at_.seconds = (before.empty() ? 0 : before.back().seconds) + number_or(row, "step_ms", 0) / 1e3;
      at_.tokens = number_or(row, "tokens", 0);
    }
    add_values("", row);
    run_.last_time = std::max(run_.last_time, number_or(row, "time", 0));
    return true;
  }

 private:
  void cut(Series& series) const {
    while (!series.empty() && series.back().step >= at_.step) series.pop_back();
  }
  void add_values(const std::string& prefix, const json& object) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) add_values(str_cat(prefix, key, "/"), value);
      if (!value.is_number() || (prefix.empty() && (key == "step" || key == "time"))) continue;
      Series& series = run_.metrics[prefix + key];
      cut(series);
      series.push_back({.step = at_.step, .tokens = at_.tokens, .seconds = at_.seconds, .value = value.get<double>()});
    }
  }

  RunFolder& run_;
  Point at_;
};

PlannedRun plan_in(const json& plan, int64_t step) {
  const auto part = [&](const char* key) {
    const auto at = plan.find(key);
    return at != plan.end() && at->is_object() ? *at : json::object();
  };
  const json memory = part("memory"), time = part("time");
  return {.step = step,
          .device = text_of(plan, "device"),
          .memory_bytes = number_or(memory, "bytes", 0),
          .capacity_bytes = number_or(plan, "capacity_bytes", 0),
          .step_seconds = number_or(time, "step_seconds", 0),
          .low_seconds = number_or(time, "low", 0),
          .high_seconds = number_or(time, "high", 0),
          .tokens_per_second = number_or(time, "tokens_per_second", 0),
          .bubble = number_or(time, "bubble", 0)};
}

bool add_event(RunFolder& run, const json& row) {
  if (text_of(row, "event").empty()) return false;
  const auto whole = [&](const char* key) { return static_cast<int64_t>(number_or(row, key, -1)); };
  run.events.push_back({.time = number_or(row, "time", 0),
                        .kind = text_of(row, "event"),
                        .step = whole("step"),
                        .steps = whole("steps"),
                        .code = whole("code"),
                        .signal = text_of(row, "signal"),
                        .text = text_of(row, "text"),
                        .version = text_of(row, "version"),
                        .prompt = text_of(row, "prompt"),
                        .ms = number_or(row, "ms", -1),
                        .val_loss = number_or(row, "val_loss", -1)});
  if (const auto plan = row.find("plan"); plan != row.end() && plan->is_object())
    run.plan = plan_in(*plan, run.events.back().step);
  return true;
}

void read_config_file(RunFolder& run, const fs::path& file) {
  if (!fs::exists(file)) return;
  try {
    run.config = config::stored_config(io::read_text_file(file), file.string());
  } catch (const Error& error) {
    run.problems.push_back(str_cat("config.toml: ", first_line_of(error.what())));
  }
}

const RunEvent* last_milestone(const RunFolder& run) {
  const auto is_milestone = [](const RunEvent& e) {
    return e.kind == "start" || e.kind == "resume" || e.kind == "end" || e.kind == "error";
  };
  const auto found = std::find_if(run.events.rbegin(), run.events.rend(), is_milestone);
  return found == run.events.rend() ? nullptr : &*found;
}

RunState state_of(const RunFolder& run) {
  using training::DirectoryLock;
  using training::Liveness;
  Liveness owner = Liveness::kDead;
  for (const char* file : {DirectoryLock::kFile, DirectoryLock::kHeldFile}) {
    const auto holder = training::parse_holder(io::text_if_readable(run.path / file));
    if (!holder) continue;
    const Liveness alive = training::liveness_of(*holder, training::this_process());
    if (alive == Liveness::kAlive) return RunState::kRunning;
    if (alive == Liveness::kUnknown) owner = alive;
  }
  const RunEvent* last = last_milestone(run);
  if (last != nullptr && last->kind == "error") return RunState::kFailed;
  if (last != nullptr && last->kind == "end") return last->signal.empty() ? RunState::kFinished : RunState::kStopped;
  if (run.config && run.config->train.steps > 0 && run.committed >= run.config->train.steps)
    return RunState::kFinished;  // a version without events.jsonl
  return owner == Liveness::kUnknown || (last == nullptr && run.step() == 0) ? RunState::kUnknown : RunState::kBroken;
}

}  // namespace

const Series& RunFolder::series(const std::string& key) const {
  static const Series kNone;
  const auto found = metrics.find(key);
  return found == metrics.end() ? kNone : found->second;
}

int64_t RunFolder::step() const {
  const int64_t rows = series("loss").empty() ? 0 : series("loss").back().step;
  return std::max(rows, committed.value_or(0));
}

bool RunFolder::resumable() const {
  const int64_t steps = config ? config->train.steps : 0;
  return committed && state != RunState::kRunning && state != RunState::kFinished && *committed < steps;
}

std::string RunFolder::state_text() const {
  const RunEvent* last = last_milestone(*this);
  std::string text(name_of(state));
  if (state == RunState::kStopped) text += str_cat(" by ", last->signal, " at ", last->step);
  if (state == RunState::kFailed) text += str_cat(" with ", last->code, " at ", last->step);
  if (state == RunState::kBroken) text += str_cat(" at ", step());
  if (resumable()) text += str_cat(", resumable at ", *committed);
  return text;
}

bool is_run(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path / "metrics.jsonl", none) || fs::is_regular_file(path / "config.toml", none);
}

RunFolder read_run(const fs::path& path) {
  std::error_code none;
  if (!is_run(path)) {
    const char* what = !fs::exists(path, none)         ? "nothing of that name"
                       : !fs::is_directory(path, none) ? "a file"
                                                       : "a directory with neither";
    throw input_error("runs", printable(path.string()), ": expected a run directory, which has config.toml or ",
                      "metrics.jsonl, got ", what, "; ashlar runs DIR lists the runs in DIR");
  }
  RunFolder run;
  run.path = path;
  run.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const training::RunDirectory files(path);
  read_config_file(run, files.config());
  MetricsReader reader(run);
  for_each_row(files.metrics(), run, [&](const json& row) { return reader.add(row); });
  for_each_row(files.events(), run, [&](const json& row) { return add_event(run, row); });
  if (const std::optional<int64_t> step = files.committed()) {
    if (*step >= 0) run.committed = step;
    if (*step < 0) run.problems.emplace_back("committed.json cannot be read");
  }
  run.checkpoints = static_cast<int64_t>(checkpoint::list(path).size());
  if (!run.events.empty()) run.last_time = std::max(run.last_time, run.events.back().time);
  run.state = state_of(run);
  return run;
}

FoundRuns find_runs(const fs::path& dir) {
  std::error_code none;
  if (!fs::is_directory(dir, none))
    throw input_error("runs", printable(dir.string()), ": expected a directory that holds runs, got ",
                      fs::exists(dir, none) ? "a file" : "nothing of that name",
                      "; give the directory: ashlar runs DIR");
  FoundRuns found;
  const std::function<bool(const fs::path&, int)> search = [&](const fs::path& at, int levels) {
    if (is_run(at)) {
      found.runs.push_back(at);
      return true;
    }
    bool any = false;
    std::error_code error;
    for (fs::directory_iterator entry(at, error); !error && levels > 0 && entry != fs::directory_iterator();
         entry.increment(error))
      if (entry->is_directory(none) && !entry->is_symlink(none)) any |= search(entry->path(), levels - 1);
    if (!any && at != dir) found.skipped.push_back(at);
    return any;
  };
  search(dir, 3);
  std::ranges::sort(found.runs);
  std::ranges::sort(found.skipped);
  return found;
}

}  // namespace ashlar::runs
