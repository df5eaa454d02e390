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

/// Steps and time of a run under `ashlar launch --restarts`. A step that a later attempt repeats from a checkpoint
/// counts as made, but not as kept.
struct Goodput {
  int64_t kept_steps = 0, made_steps = 0;
  double kept_seconds = 0;  ///< time of the kept steps
  double seconds = 0;       ///< since the launch, including starts and waits
  double steps() const {
    return made_steps == 0 ? 1 : static_cast<double>(kept_steps) / static_cast<double>(made_steps);
  }
  double time() const { return seconds <= 0 ? 1 : kept_seconds / seconds; }
};

/// Follows a run by its directory, without owning it: the step of its newest checkpoint, and the rows of metrics.jsonl
/// that each attempt has added. Reads each row once.
class RunProgress {
 public:
  explicit RunProgress(std::filesystem::path run_dir);

  int64_t committed() const { return committed_; }  ///< step of the newest checkpoint; 0: none
  const Goodput& goodput() const { return goodput_; }
  /// True if the directory was replaced since the beginning: `train --restart` has renamed the old one.
  bool renewed() const;
  /// Called after an attempt: counts its rows; those up to the newest checkpoint are kept.
  void look();
  /// Appends a row with the step of the newest checkpoint, so that a resume keeps it. No effect if there is no file.
  void append(const std::string& json);

 private:
  void count_rows(int64_t up_to);

  std::filesystem::path run_dir_;
  std::optional<uint64_t> inode_;
  int64_t committed_ = 0;
  std::optional<io::FileStamp> stamp_;  ///< stamp of metrics.jsonl at the last read
  uint64_t read_to_ = 0;                ///< bytes of metrics.jsonl that are counted and final
  Goodput goodput_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

/// The run directory of `train WORDS`. Throws the errors that `train` would throw.
std::filesystem::path run_directory_of(std::span<const std::string> words);

/// Parameters of a run that is restarted; the actions are callbacks.
struct RestartArgs {
  int64_t restarts = 0;  ///< allowed restarts in a row without a new committed step
  std::filesystem::path run_dir;
  std::vector<std::string> words;                                 ///< arguments of `train`
  std::function<int(const std::vector<std::string>& words)> run;  ///< runs an attempt; returns its exit code
  std::function<bool()> asked_to_end;                             ///< a signal has asked the job to end
  std::function<bool(std::chrono::milliseconds)> wait;            ///< true: a signal arrived meanwhile
  std::function<void(const std::string&)> say;                    ///< prints a line
};

/// Runs attempts until one ends with a code other than 5, a signal arrives, or `restarts` attempts in a row have
/// committed nothing new. Waits 1 s before a restart, doubled for each in a row, at most 60 s. Records goodput in
/// metrics.jsonl after each attempt and prints it at the end. Returns the code of the last attempt.
int keep_alive(const RestartArgs& args);

}  // namespace ashlar::launch
