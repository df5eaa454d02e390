#pragma once

#include <filesystem>
#include <string>

namespace ashlar::training {

/// A run's directory, owned by one process at a time.
class RunDirectory {
 public:
  /// Creates it if needed, checks that it can be written and locks it. Input error when it cannot, or when another
  /// process trains there.
  explicit RunDirectory(const std::filesystem::path& path);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  /// Moves a run out of the way: PATH becomes PATH.old-1 (or the next free number). Returns the new name, or empty
  /// when there was nothing.
  static std::filesystem::path set_aside(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  int lock_fd_ = -1;
};

}  // namespace ashlar::training
