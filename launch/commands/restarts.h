#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/posix_file.h"

namespace ashlar::launch {

/// Steps and time of a run under `ashlar launch --restarts`. Every executed step counts as made. It counts as kept only
/// if a checkpoint has saved its result, so that no later attempt repeats it.
struct Goodput {
  int64_t kept_steps = 0, made_steps = 0;
  double kept_seconds = 0;  ///< time of the kept steps
  double seconds = 0;       ///< time since the launch, including starts and waits
  double steps() const {
    return made_steps == 0 ? 1 : static_cast<double>(kept_steps) / static_cast<double>(made_steps);
  }
  double time() const { return seconds <= 0 ? 1 : kept_seconds / seconds; }
};

/// Watches a run through the files in its directory, without taking the directory's lock: reads the step of the newest
/// checkpoint, and counts the rows that each attempt adds to metrics.jsonl, each row once.
class RunProgress {
 public:
  explicit RunProgress(std::filesystem::path run_dir);

  int64_t committed() const { return committed_; }  ///< step of the newest checkpoint; 0: none
  const Goodput& goodput() const { return goodput_; }
  /// True if the directory was replaced since the construction or the last `look`: `train --restart` has renamed the
  /// old one.
  bool renewed() const;
  /// Called after an attempt: counts the steps in its rows. Steps up to the newest checkpoint count as kept.
  void look();
  /// Appends the row `json` to metrics.jsonl; no effect if the file does not exist. The row must have the step of the
  /// newest checkpoint, because a resume keeps only the rows up to that step.
  void append(const std::string& json);

 private:
  void count_rows(int64_t up_to);

  std::filesystem::path run_dir_;
  std::optional<uint64_t> inode_;
  int64_t committed_ = 0;
  std::optional<io::FileStamp> stamp_;  ///< stamp of metrics.jsonl at the last read
  uint64_t read_to_ = 0;                ///< bytes of metrics.jsonl whose rows are counted and will not change
  Goodput goodput_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

/// Returns the run directory of `train WORDS`. Throws the errors that `train` would throw.
std::filesystem::path run_directory_of(std::span<const std::string> words);

/// Parameters of a run that is restarted; the actions are callbacks.
struct RestartArgs {
  int64_t restarts = 0;  ///< allowed restarts in a row without a new committed step
  std::filesystem::path run_dir;
  std::vector<std::string> words;                                 ///< arguments of `train`
  std::function<int(const std::vector<std::string>& words)> run;  ///< runs an attempt; returns its exit code
  std::function<bool()> asked_to_end;                             ///< returns true if a signal has asked the job to end
  std::function<bool(std::chrono::milliseconds)> wait;            ///< waits; returns true if a signal ended the wait
  std::function<void(const std::string&)> say;                    ///< prints a line
};

/// Runs attempts until one ends with a code other than 5, a signal arrives, or `restarts` restarted attempts in a row
/// have committed no new step. Waits 1 s before a restart; while no new step is committed, the wait doubles with each
/// restart, up to 60 s. Records goodput in metrics.jsonl after each attempt that ended with code 5 and after each
/// restarted attempt, and prints it at the end. Returns the code of the last attempt.
int keep_alive(const RestartArgs& args);

}  // namespace ashlar::launch
