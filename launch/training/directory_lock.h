#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace ashlar::training {

/// Who holds a directory: what its lock file says.
struct LockHolder {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;   ///< the process, in clock ticks since its machine started
  std::string boot;       ///< since which start of that machine
  std::string pid_space;  ///< in which container its number counts
  std::string since;      ///< UTC, like 2026-03-01 12:00:00
  bool operator==(const LockHolder&) const = default;
};
LockHolder this_process();
std::string to_text(const LockHolder& holder);
std::optional<LockHolder> parse_holder(const std::string& text);
/// "process 4711 on node7 since 2026-03-01 12:00:00 UTC".
std::string describe(const LockHolder& holder);

/// Whether a holder may still live, as `self` can tell.
enum class Liveness { kAlive, kDead, kUnknown };
Liveness liveness_of(const LockHolder& holder, const LockHolder& self);

/// A directory held by one process at a time, from construction to destruction, by flock on DIR/.lock. Where the file
/// system has no such locks, by a file DIR/.lock.held that only one process can make: it stays behind a killed process,
/// so that the next one judges by host, start of the machine and process number whether its maker lives, and refuses
/// when it cannot tell. Both files say who holds.
class DirectoryLock {
 public:
  using FileLock = int (*)(int fd, int operation);  ///< flock, or a test's stand-in
  static constexpr const char* kFile = ".lock";
  static constexpr const char* kHeldFile = ".lock.held";

  /// Input error when another process holds `dir` (named where known), or when it cannot be written.
  DirectoryLock(std::filesystem::path dir, FileLock file_lock);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

  /// One line for the log when the directory is held in the second way; empty otherwise.
  const std::string& note() const { return note_; }
  /// The directory, lock files and all, has a new name.
  void moved(std::filesystem::path dir) { dir_ = std::move(dir); }

 private:
  bool take_file_lock(FileLock file_lock);  ///< false: not supported here
  void take_held_file(const std::string& why);
  void remove_dead_holder();  ///< then the held file can be tried again

  std::filesystem::path dir_;
  int fd_ = -1;
  bool held_file_ = false;
  std::string note_;
};

}  // namespace ashlar::training
