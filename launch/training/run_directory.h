#pragma once

#include <sys/file.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launch/training/directory_lock.h"

namespace ashlar::training {

/// A run's directory, owned by one run at a time.
class RunDirectory {
 public:
  /// `file_lock` is a test's stand-in for flock, `watch_seconds` its patience with an owner that nobody can judge.
  explicit RunDirectory(std::filesystem::path path, DirectoryLock::FileLock file_lock = flock,
                        double watch_seconds = 30)
      : path_(std::move(path)), file_lock_(file_lock), watch_seconds_(watch_seconds) {}

  /// Creates it if needed, checks that it can be written and locks it until this object ends: one rank of a run does.
  /// Input error when it cannot, or when another run trains there. Returns a line for the log, or nothing; `say` hears
  /// before and after that it waits to see whether another one does (DirectoryLock).
  std::string lock(const DirectoryLock::Say& say = [](const auto&) {});
  /// Input error when the locked directory was moved or deleted since, or when another process has taken it: to be
  /// called before each write. For any thread.
  void check_owned() const;
  /// Moves what a locked directory holds out of the way: PATH becomes PATH.old-1 (or the next free number), and a new
  /// PATH stands there, locked. Returns the new name, or empty when there was nothing. Input error when a name cannot
  /// be changed; everything is then where it was.
  std::filesystem::path set_aside();
  /// Input error when set_aside could not do so whatever comes: this process works in the directory or below it, and
  /// what it and its user name by relative paths would move away with it; or the path leads through a part of the
  /// directory. Touches nothing, needs no lock.
  void check_can_be_set_aside() const;
  /// Input error when the directory is not there, on any rank after one has locked it.
  void check_visible() const;

  /// The newest checkpoint that this run has committed, as the directory itself remembers it, whatever becomes of
  /// `checkpoints/`; nothing before the first one and in directories of older versions. `step` is -1 when the record
  /// cannot be read.
  struct Committed {
    int64_t step = -1;
  };
  std::optional<Committed> committed() const;
  void record_committed(int64_t step) const;  ///< atomically; for any thread
  /// Of a run that has found no checkpoint: damaged error when it had committed one.
  void check_none_lost() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path committed_file() const { return path_ / "committed.json"; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path choices() const { return path_ / "choices.json"; }  ///< of algorithms (Tuning)
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

 private:
  std::filesystem::path path_;
  DirectoryLock::FileLock file_lock_;
  double watch_seconds_;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace ashlar::training
