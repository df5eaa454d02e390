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

/// What a run has made of its steps and of its time while `ashlar launch --restarts` kept it alive. Steps that were
/// made again from a checkpoint were made, and not kept.
struct Goodput {
  int64_t kept_steps = 0, made_steps = 0;
  double kept_seconds = 0;  ///< what the kept steps took
  double seconds = 0;       ///< since the launch, starts and waits included
  double steps() const {
    return made_steps == 0 ? 1 : static_cast<double>(kept_steps) / static_cast<double>(made_steps);
  }
  double time() const { return seconds <= 0 ? 1 : kept_seconds / seconds; }
};

/// Follows a run by its directory, without owning it: the step of its newest checkpoint, and the rows of its
/// metrics.jsonl that each attempt has added. Reads each row once.
class RunProgress {
 public:
  explicit RunProgress(std::filesystem::path run_dir);

  int64_t committed() const { return committed_; }  ///< step of the newest checkpoint; 0: none
  const Goodput& goodput() const { return goodput_; }
  /// Whether the directory is another one than at the beginning: `train --restart` has set the old one aside.
  bool renewed() const;
  /// An attempt has ended: counts its rows; those up to the newest checkpoint are kept.
  void look();
  /// Appends a row under the step of the newest checkpoint, so that a resume keeps it. Nothing where there is no file.
  void append(const std::string& json);

 private:
  void count_rows(int64_t up_to);

  std::filesystem::path run_dir_;
  std::optional<uint64_t> inode_;
  int64_t committed_ = 0;
  std::optional<io::FileStamp> stamp_;  ///< of metrics.jsonl when it was last looked at
  uint64_t read_to_ = 0;                ///< bytes of metrics.jsonl that are counted and stay
  Goodput goodput_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

/// The run directory of `train WORDS`. Throws what `train` would throw for them.
std::filesystem::path run_directory_of(std::span<const std::string> words);

/// How a run is kept alive; what it does is handed in.
struct RestartArgs {
  int64_t restarts = 0;  ///< in a row, without a new committed step, until the run ends
  std::filesystem::path run_dir;
  std::vector<std::string> words;                                 ///< of train
  std::function<int(const std::vector<std::string>& words)> run;  ///< an attempt; its exit code
  std::function<bool()> told_to_end;                              ///< by a signal
  std::function<bool(std::chrono::milliseconds)> wait;            ///< true: told to end meanwhile
  std::function<void(const std::string&)> say;                    ///< a line
};

/// Runs attempts until one ends with another code than 5, a signal has come, or `restarts` in a row have committed
/// nothing new. Waits 1 s before the next, twice as long with each in a row, 60 s at most. Says what became of steps
/// and time in metrics.jsonl after each attempt and in a line at the end. Returns the code of the last attempt.
int keep_alive(const RestartArgs& args);

}  // namespace ashlar::launch
