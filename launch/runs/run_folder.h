#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/config/run_config.h"

namespace ashlar::runs {

/// A value of a metric after `step` steps. `seconds` is the time that the run's steps took up to then, without
/// validation, saves and the time between two starts. It is 0 in runs without `step_ms`, as `tokens` is without tokens.
struct Point {
  int64_t step = 0;
  double tokens = 0, seconds = 0, value = 0;
};
using Series = std::vector<Point>;

/// A line of events.jsonl. Fields that the event does not have are empty, or -1.
struct RunEvent {
  double time = 0;
  std::string kind;  ///< start, resume, save, saved, warning, note, end, error
  int64_t step = -1, steps = -1, code = -1;
  std::string signal, text, version, prompt;
  double ms = -1, val_loss = -1;  ///< of a save
};

/// The plan that the last start of a run made (the `plan` of its line in events.jsonl).
struct PlannedRun {
  int64_t step = 0;  ///< steps completed at that start
  std::string device;
  double memory_bytes = 0, capacity_bytes = 0;  ///< capacity 0: unknown
  /// 0 without a measured device.
  double step_seconds = 0, low_seconds = 0, high_seconds = 0, tokens_per_second = 0, bubble = 0;
};

enum class RunState : uint8_t {
  kRunning,
  kFinished,
  kStopped,  ///< by a signal
  kFailed,
  kBroken,   ///< its process ended without a word, as after SIGKILL
  kUnknown,  ///< its owner is on another machine, or the files do not say
};
constexpr auto names_of(RunState) {
  return enum_names<RunState>("running", "finished", "stopped", "failed", "broken off", "unknown");
}

/// What a run directory holds, read without a lock while the run may write. A file that an older version did not write
/// leaves its fields empty.
struct RunFolder {
  std::filesystem::path path;
  std::string name;
  std::optional<config::RunConfig> config;
  std::vector<std::string> problems;      ///< what could not be read, one line each
  std::map<std::string, Series> metrics;  ///< by key, ascending steps; nested keys as stats/NAME/grad_rms
  std::vector<RunEvent> events;
  std::optional<PlannedRun> plan;    ///< nothing in runs of a version that did not write it
  std::optional<int64_t> committed;  ///< step in committed.json
  int64_t checkpoints = 0;           ///< number of checkpoint directories
  double last_time = 0;              ///< last change of the metrics, in seconds since 1970
  RunState state = RunState::kUnknown;

  const Series& series(const std::string& key) const;  ///< empty if the run lacks the key
  int64_t step() const;                                ///< last completed step
  bool resumable() const;  ///< has a committed checkpoint, is not running and has steps left
  std::string state_text() const;
};

/// True if `path` is a directory with a config.toml or metrics.jsonl of a run.
bool is_run(const std::filesystem::path& path);

/// Reads a run. Throws an input error if `path` is no run. An incomplete last line of a file is ignored; lines that are
/// not rows are counted in `problems`.
RunFolder read_run(const std::filesystem::path& path);

/// The runs in `dir` (`dir` itself, or directories up to three levels below it), ordered by name, and the directories
/// that are not runs and hold none.
struct FoundRuns {
  std::vector<std::filesystem::path> runs, skipped;
};
/// Throws an input error if `dir` is not a directory.
FoundRuns find_runs(const std::filesystem::path& dir);

}  // namespace ashlar::runs
