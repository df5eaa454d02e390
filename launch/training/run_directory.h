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
  /// `file_lock` replaces flock in tests; `watch_seconds`: how long to watch an owner that may be dead (DirectoryLock).
  explicit RunDirectory(std::filesystem::path path, DirectoryLock::FileLock file_lock = flock,
                        double watch_seconds = 30)
      : path_(std::move(path)), file_lock_(file_lock), watch_seconds_(watch_seconds) {}

  /// Creates the directory if needed, checks that it is writable and locks it for the lifetime of this object. Called
  /// by one rank of a run. Input error if the directory cannot be created, written or locked, e.g. because another run
  /// trains there. Returns DirectoryLock::note, a line for the log or an empty text. `log_line` receives the lines
  /// about a wait for another owner (DirectoryLock).
  std::string lock(const DirectoryLock::LogLine& log_line = [](const auto&) {});
  /// Input error if the locked directory was moved or deleted, or another process took it over. To be called before
  /// each write. Thread-safe.
  void check_owned() const;
  /// Renames the locked directory: PATH becomes PATH.old-1 (or the next free number), and a new, locked PATH is
  /// created. Returns the path of the old directory. A directory that contains only lock files is not renamed; the
  /// result is then an empty path. Input error if renaming fails; everything is then unchanged.
  std::filesystem::path set_aside();
  /// Input error if set_aside is certain to fail: because the working directory of this process is inside the run
  /// directory, so that relative paths would change their meaning, or because the path of the run directory passes
  /// through one of its entries. Changes nothing, needs no lock.
  void check_can_be_set_aside() const;
  /// Throws an input error if the directory is missing on some rank after one rank has locked it.
  void check_visible() const;

  /// Returns the step of the newest checkpoint committed by this run, as recorded in committed.json; -1 if that file is
  /// unreadable. Does not depend on the contents of checkpoints/. Returns nullopt if no checkpoint has been committed,
  /// or if an older version wrote the directory.
  std::optional<int64_t> committed() const;
  void record_committed(int64_t step) const;  ///< writes committed.json atomically; thread-safe
  /// Called if no checkpoint was found: throws a damaged-data error if committed.json records one.
  void check_none_lost() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path committed_file() const { return path_ / "committed.json"; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path choices() const { return path_ / "choices.json"; }  ///< chosen algorithms (Tuning)
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path log() const { return path_ / "train.log"; }
  std::filesystem::path start() const { return path_ / "start.txt"; }
  std::filesystem::path events() const { return path_ / "events.jsonl"; }

 private:
  std::filesystem::path path_;
  DirectoryLock::FileLock file_lock_;
  double watch_seconds_;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace ashlar::training
