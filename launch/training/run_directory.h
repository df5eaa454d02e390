#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace ashlar::training {

/// A run's directory, owned by one run at a time.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  /// Creates it if needed, checks that it can be written and locks it until this object ends: one rank of a run does.
  /// Input error when it cannot, or when another run trains there.
  void lock();
  /// Input error when the directory is not there, on any rank after one has locked it.
  void check_visible() const;

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
